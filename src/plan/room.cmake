# The plan as JSON.
find_package(nlohmann_json REQUIRED)
target_link_libraries(lode_plan PUBLIC nlohmann_json::nlohmann_json)
