# Boost.Beast and Asio are headers only; 1.74 (Debian's default) and 1.81 both do.
find_package(Boost 1.74 REQUIRED)
find_package(nlohmann_json REQUIRED)
find_package(spdlog REQUIRED)
target_link_libraries(lode_serve PUBLIC Boost::headers nlohmann_json::nlohmann_json spdlog::spdlog OpenSSL::SSL OpenSSL::Crypto)
# io_context's implementation is compiled once, in asio.cc, not in every file that includes a header of it.
target_compile_definitions(lode_serve PUBLIC BOOST_ASIO_SEPARATE_COMPILATION BOOST_ASIO_NO_DEPRECATED
                                             BOOST_BEAST_SEPARATE_COMPILATION)
set(LODE_HEAVY_HEADERS <boost/asio.hpp> <boost/beast/core.hpp> <boost/beast/http.hpp> <nlohmann/json.hpp>)
set_source_files_properties(${CMAKE_SOURCE_DIR}/src/serve/asio.cc PROPERTIES SKIP_PRECOMPILE_HEADERS ON)  # Boost's own.
# openapi.json, as a string of the binary.
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/serve/openapi.json)
file(READ ${CMAKE_SOURCE_DIR}/src/serve/openapi.json LODE_OPENAPI)
configure_file(${CMAKE_SOURCE_DIR}/src/serve/openapi_text.cc.in ${CMAKE_BINARY_DIR}/generated/openapi_text.cc @ONLY)
target_sources(lode_serve PRIVATE ${CMAKE_BINARY_DIR}/generated/openapi_text.cc)
