# Files of an instruction set are compiled for it; nothing else is, so that the binary runs on every x86-64.
file(GLOB_RECURSE lode_avx2_sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_LIST_DIR}/cpu/avx2/*.cc)
set(lode_avx2_flags -mavx2 -mfma -mf16c -O3)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  list(APPEND lode_avx2_flags -fno-tree-reassoc)
endif()
set_source_files_properties(${lode_avx2_sources} PROPERTIES COMPILE_OPTIONS "${lode_avx2_flags}")
