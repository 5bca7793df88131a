# SHA-256 for the fingerprint; the block formats' sizes for the tensor table.
target_link_libraries(lode_gguf PUBLIC OpenSSL::Crypto lode_quant)
