find_package(CLI11 REQUIRED)
target_link_libraries(lode_cli PUBLIC CLI11::CLI11)
set(LODE_HEAVY_HEADERS <CLI/CLI.hpp> <nlohmann/json.hpp>)
