#include "kernels/kernels.h"

#include <algorithm>

#include "base/bytes.h"
#include "kernels/cpu/avx512/ops.h"
#include "kernels/cpu/generic/attention.h"
#include "kernels/cpu/ops.h"
#include "kernels/cpu/split.h"

namespace lode::kernels {

std::vector<const Table*> available_tables() {
  std::vector<const Table*> tables;
#if defined(__x86_64__)
  // The compiler's run-time library also asks XGETBV whether the operating system keeps the wide registers.
  const bool has_avx2 =
      __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c");
  if (has_avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512vnni"))
    tables.push_back(&avx512::table());
  if (has_avx2) tables.push_back(&avx2::kTable);
#endif
  tables.push_back(&generic::kTable);
  return tables;
}

Result<const Table*> select_table(std::string_view isa) {
  const std::vector<const Table*> tables = available_tables();
  if (isa.empty()) return tables.front();
  std::string names;
  for (const Table* table : tables) {
    if (table->name == isa) return table;
    names += (names.empty() ? "" : ", ") + std::string(table->name);
  }
  return Status::invalid("--isa " + std::string(isa) + ": this machine runs " + names + "; leave the flag out to use " +
                         std::string(tables.front()->name));
}

std::string_view kv_format_name(KvType type) {
  switch (type) {
    case KvType::f32: return "f32";
    case KvType::f16: return "f16";
    case KvType::q8_0: return "q8_0+wht";
    case KvType::i16: return "i16";
  }
  return "?";
}

// Products work in panels of a fixed size, so that only the heads matter.
std::size_t scratch_bytes_per_thread(std::int64_t, std::int64_t head_dim_max) {
  return align_up(std::max(kMatmulScratch, generic::attention_scratch_bytes(head_dim_max)), 64);
}

}  // namespace lode::kernels
