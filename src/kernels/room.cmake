# Files of an instruction set are compiled for it; nothing else is, so that the binary runs on every x86-64.
file(GLOB_RECURSE lode_avx2_sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_LIST_DIR}/cpu/avx2/*.cc)
set_source_files_properties(${lode_avx2_sources} PROPERTIES COMPILE_OPTIONS "-mavx2;-mfma;-mf16c;-O3;-fno-tree-reassoc")
