// Stands in for fmt/ranges.h; see format.h beside it.
#pragma once

#include <fmt/format.h>
