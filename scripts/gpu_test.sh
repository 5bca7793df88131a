#!/usr/bin/env bash
# Builds gpu_test on a machine with a card, nvcc and g++ 13 and nothing else (no CMake, liburing, PCRE2, GoogleTest; fmt
# and OpenSSL only where they are), and runs what it is told, each as one run that prints a table.
#
#   scripts/gpu_test.sh [-a ARCH] [-b FOLDER] [-n] [-s] [ops] [goldens=FOLDER] [text=MODEL] [speed=MODEL]
#
# -a  nvcc's architecture, such as 90a or 86; default: the first card's.   -b  where objects go; default build/gpu.
# -n  do not run, only build.   -s  use the stand-ins for fmt and OpenSSL even where these are there.
# Without a command: ops.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
cd "$ROOT"

arch='' out=$ROOT/build/gpu run=1 stand_ins=''
while getopts a:b:ns flag; do
  case $flag in
    a) arch=$OPTARG ;;
    b) out=$OPTARG ;;
    n) run='' ;;
    s) stand_ins=1 ;;
    *) die "unknown option; the file's head says which there are" ;;
  esac
done
shift $((OPTIND - 1))

nvcc=$(command -v nvcc || true)
for candidate in /usr/local/cuda/bin/nvcc /opt/cuda/bin/nvcc; do
  if [[ -z $nvcc && -x $candidate ]]; then nvcc=$candidate; fi
done
[[ -n $nvcc ]] || die "no nvcc: install NVIDIA's CUDA toolkit (12.4 or later)"
if [[ -z $arch ]]; then
  arch=$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader 2>/dev/null | sed -n 1p | tr -d .) || true
  [[ -n $arch ]] || die "no card answers nvidia-smi; name an architecture with -a to build without one"
fi
mkdir -p "$out"

has_header() { [[ -z $stand_ins ]] && printf '#include <%s>\n' "$1" | g++ -std=c++20 -E -x c++ - >/dev/null 2>&1; }
flags=(-std=c++20 -O2 -g1 -Wall -Wextra -Wno-unused-parameter -Wno-missing-field-initializers -ffp-contract=off
  -Isrc -Itests/gpu -DLODE_HAS_CUDA)
libraries=(-lpthread)
if has_header fmt/format.h; then
  flags+=(-DFMT_HEADER_ONLY)
else
  mkdir -p "$out/shim"
  cp -r tests/gpu/shim/fmt "$out/shim/"
  flags+=("-I$out/shim")
fi
if has_header openssl/evp.h; then
  libraries+=(-lcrypto)
else
  mkdir -p "$out/shim"
  cp -r tests/gpu/shim/openssl "$out/shim/"
  [[ " ${flags[*]} " == *" -I$out/shim "* ]] || flags+=("-I$out/shim")
fi
avx2=(-mavx2 -mfma -mf16c -O3 -fno-tree-reassoc)
avx512=(-mavx512f -mavx512bw -mavx512dq -mavx512vl -mavx512vnni -mprefer-vector-width=512)
cuda=(-std=c++20 -O3 -fmad=false -diag-suppress=2810 "-gencode=arch=compute_$arch,code=sm_$arch" -Isrc)

# One line an object: its source, a tab, the command. Objects newer than every source and header are kept.
newest_header=$(find src tests/gpu \( -name '*.h' -o -name '*.cuh' \) -printf '%T@ %p\n' | sort -rn | sed -n 1p | cut -d ' ' -f 2-)
: >"$out/commands"
objects=()
add() {
  local source=$1 object
  shift
  object=$out/$(tr / _ <<<"${source%.*}").o
  objects+=("$object")
  if [[ $object -nt $source && $object -nt $newest_header ]]; then return; fi
  printf '%q ' "$@" -c "$source" -o "$object" >>"$out/commands"
  printf '\n' >>"$out/commands"
}
while read -r source; do add "$source" "$nvcc" "${cuda[@]}"; done < <(ls -S src/kernels/cuda/*.cu)
while read -r source; do
  case $source in
    tests/gpu/*) add "$source" g++ "${flags[@]}" ;;
    *_test.cc | *_fuzz.cc) continue ;;
    src/kernels/cpu/avx2/*) [[ $(uname -m) != x86_64 ]] || add "$source" g++ "${flags[@]}" "${avx2[@]}" ;;
    src/kernels/cpu/avx512/table.cc) add "$source" g++ "${flags[@]}" ;;
    src/kernels/cpu/avx512/*)
      [[ $(uname -m) != x86_64 ]] || add "$source" g++ "${flags[@]}" "${avx2[@]}" "${avx512[@]}" -Wno-maybe-uninitialized -Wno-uninitialized
      ;;
    *) add "$source" g++ "${flags[@]}" ;;
  esac
done < <(find src/base src/quant src/gguf src/kernels src/model src/platform/mapping.cc src/platform/shared_library.cc tests/gpu -name '*.cc' | sort)

started=$SECONDS
if ! xargs -P "$JOBS" -d '\n' -n 1 bash -c <"$out/commands" >"$out/log" 2>&1; then
  grep -E -m 20 'error|Error' "$out/log" >&2 || tail -n 25 "$out/log" >&2
  die "the build; the whole output is in $out/log"
fi
cublas=$(dirname "$(dirname "$nvcc")")/lib64
if [[ ! -e $cublas/libcublas.so ]]; then
  cublas=$(dirname "$(find / -name 'libcublas.so*' -not -path '/proc/*' 2>/dev/null | head -n 1)")
fi
library=$(ls "$cublas"/libcublas.so* | head -n 1)
"$nvcc" "-gencode=arch=compute_$arch,code=sm_$arch" -o "$out/gpu_test" "${objects[@]}" "$library" -Xlinker "-rpath,$cublas" \
  "${libraries[@]}"
say "-- built for sm_$arch in $((SECONDS - started)) s"

[[ -n $run ]] || exit 0
[[ $# -gt 0 ]] || set -- ops
failed=0
for what in "$@"; do
  command=${what%%=*}
  argument=${what#*=}
  [[ $argument != "$what" ]] || argument=
  # shellcheck disable=SC2086
  "$out/gpu_test" "$command" $argument || failed=1
done
exit $failed
