# liburing: asynchronous reads.
pkg_check_modules(URING REQUIRED IMPORTED_TARGET liburing)
target_link_libraries(lode_platform PUBLIC PkgConfig::URING)
