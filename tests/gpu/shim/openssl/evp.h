// Stands in for OpenSSL where scripts/gpu_test.sh finds none. The GPU tests take no fingerprint of a file: a call ends
// the process by the check that follows it.
#pragma once

#include <cstddef>

struct EVP_MD_CTX;
struct EVP_MD;
inline EVP_MD_CTX* EVP_MD_CTX_new() {
  return nullptr;
}
inline void EVP_MD_CTX_free(EVP_MD_CTX*) {}
inline const EVP_MD* EVP_sha256() {
  return nullptr;
}
inline int EVP_DigestInit_ex(EVP_MD_CTX*, const EVP_MD*, void*) {
  return 0;
}
inline int EVP_DigestUpdate(EVP_MD_CTX*, const void*, std::size_t) {
  return 0;
}
inline int EVP_DigestFinal_ex(EVP_MD_CTX*, unsigned char*, unsigned*) {
  return 0;
}
