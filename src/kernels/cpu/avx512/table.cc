// The table of AVX-512: AVX2's, so that every operation and format works and new ones are inherited, with the functions
// that gain from 512 bits replaced. Compiled without AVX-512 (kernels/room.cmake), since it runs before any choice.
#include "kernels/cpu/avx512/ops.h"
#include "kernels/cpu/ops.h"

namespace lode::kernels::avx512 {

const Table& table() {
  static const Table table = [] {
    Table t = avx2::kTable;
    t.name = "avx512";
    t.matmul = avx512::matmul;
    t.rms_norm = avx512::rms_norm;
    t.add = avx512::add;
    t.add_bias = avx512::add_bias;
    t.rope = avx512::rope;
    t.glu = avx512::glu;
    t.attention = avx512::attention;
    t.softcap = avx512::softcap;
    return t;
  }();
  return table;
}

}  // namespace lode::kernels::avx512
