# kernels_test_static, matmul_bench_static, attention_bench_static: this room and what it stands on in one static binary
# each, to run the tests and benchmarks of an instruction set on another x86-64 Linux that has none of our packages.
# Included by room.cmake when LODE_STATIC_KERNELS is on; nothing builds them by default.
find_library(LODE_GTEST_STATIC NAMES libgtest.a REQUIRED)
find_library(LODE_GTEST_MAIN_STATIC NAMES libgtest_main.a REQUIRED)
file(GLOB static_base CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/base/*.cc ${CMAKE_SOURCE_DIR}/src/quant/*.cc)
list(FILTER static_base EXCLUDE REGEX "_(test|fuzz)\\.cc$")
add_library(lode_kernels_static STATIC EXCLUDE_FROM_ALL ${sources} ${static_base}
            ${CMAKE_SOURCE_DIR}/src/platform/virtual_range.cc)
target_include_directories(lode_kernels_static PUBLIC ${CMAKE_SOURCE_DIR}/src)
target_compile_definitions(lode_kernels_static PUBLIC FMT_HEADER_ONLY LODE_SOURCE_DIR="${CMAKE_SOURCE_DIR}")
target_link_libraries(lode_kernels_static PUBLIC Threads::Threads)
target_link_options(lode_kernels_static PUBLIC -static -s)

add_executable(kernels_test_static EXCLUDE_FROM_ALL ${tests})
target_link_libraries(kernels_test_static PRIVATE lode_kernels_static ${LODE_GTEST_MAIN_STATIC} ${LODE_GTEST_STATIC})
# The sources that they share are added where bench/ is built (CMakeLists.txt).
foreach(bench matmul attention)
  add_executable(${bench}_bench_static EXCLUDE_FROM_ALL ${CMAKE_SOURCE_DIR}/bench/${bench}_bench.cc)
  target_link_libraries(${bench}_bench_static PRIVATE lode_kernels_static)
endforeach()
