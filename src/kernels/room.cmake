# Files of an instruction set are compiled for it; nothing else is, so that the binary runs on every x86-64.
file(GLOB_RECURSE lode_avx2_sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_LIST_DIR}/cpu/avx2/*.cc)
set(lode_avx2_flags -mavx2 -mfma -mf16c -O3)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  list(APPEND lode_avx2_flags -fno-tree-reassoc)
endif()
set_source_files_properties(${lode_avx2_sources} PROPERTIES COMPILE_OPTIONS "${lode_avx2_flags}")

# The AVX-512 table's kernels; its table.cc and tests run on any processor.
file(GLOB lode_avx512_sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_LIST_DIR}/cpu/avx512/*.cc)
list(FILTER lode_avx512_sources EXCLUDE REGEX "(_test|/table)\\.cc$")
set(lode_avx512_flags ${lode_avx2_flags} -mavx512f -mavx512bw -mavx512dq -mavx512vl -mavx512vnni
    -mprefer-vector-width=512)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  # g++ 12 takes its own headers' undefined vectors for uninitialized ones (GCC bug 105593).
  list(APPEND lode_avx512_flags -Wno-maybe-uninitialized -Wno-uninitialized)
endif()
set_source_files_properties(${lode_avx512_sources} PROPERTIES COMPILE_OPTIONS "${lode_avx512_flags}")

option(LODE_STATIC_KERNELS "Targets that test the kernels on another machine" OFF)
if(LODE_STATIC_KERNELS)
  include(${CMAKE_CURRENT_LIST_DIR}/static.cmake)
endif()
