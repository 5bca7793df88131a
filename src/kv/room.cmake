# OpenSSL: SHA-256 of the block keys. xxHash: checksums of slices and records. spdlog: what was set aside, once.
pkg_check_modules(XXHASH REQUIRED IMPORTED_TARGET libxxhash)
find_package(spdlog REQUIRED)
target_link_libraries(lode_kv PUBLIC OpenSSL::Crypto PkgConfig::XXHASH spdlog::spdlog)
