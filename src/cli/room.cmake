find_package(CLI11 REQUIRED)
target_link_libraries(lode_cli PUBLIC CLI11::CLI11)
