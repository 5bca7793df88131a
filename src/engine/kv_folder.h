// Where KV is kept where nobody says. Any thread.
#pragma once

#include <filesystem>

namespace lode::engine {

// Where the KV store lies unless --kv-disk names another: in the user's cache folder. Empty: there is none.
std::filesystem::path default_kv_folder();

}  // namespace lode::engine
