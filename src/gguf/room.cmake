# SHA-256 for the fingerprint.
target_link_libraries(lode_gguf PUBLIC OpenSSL::Crypto)
