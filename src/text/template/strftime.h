// strftime in the C locale over a given time, as Python prints it on Linux. Pure.
#pragma once

#include <string>
#include <string_view>

#include "text/template/template.h"

namespace lode::text::jinja {

// Unknown directives stay as written. Throws Fault for a time that is none.
std::string format_time(std::string_view format, const DateTime& time);

}  // namespace lode::text::jinja
