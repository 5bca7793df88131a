# The golden files of the tests are deflated archives.
if(LODE_TESTS)
  find_package(ZLIB REQUIRED)
  cmake_language(DEFER CALL target_link_libraries quant_test PRIVATE ZLIB::ZLIB)
endif()
