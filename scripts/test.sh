#!/usr/bin/env bash
# Sets up and runs every test; ends with a table and one line "N passed, N failed, N skipped".
#
#   scripts/test.sh           everything
#   scripts/test.sh --fast    only the unit tests and the end-to-end tests
#   scripts/test.sh --only STAGE[,STAGE...]    layering, format, scripts, unit, simulation, counts, e2e, asan, tsan, fuzz, tidy,
#                             analyzer
#
# The stages' processor time at about 3 GHz, builds included: unit 16 min, simulation 1, counts 1, e2e 10, asan 28 (with fuzz 30), fuzz
# alone 17, tsan 11, tidy 5, analyzer 20.
# With CI=true the shared test data at ../shared/data must be there; elsewhere tests that need it are skipped.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

stages=layering,format,scripts,unit,simulation,counts,e2e,asan,tsan,fuzz,tidy,analyzer
while (($#)); do
  case $1 in
    --fast) stages=layering,scripts,unit,e2e ;;
    --only)
      (($# > 1)) || die '--only needs a list of stages'
      stages=$2
      shift
      ;;
    *) die "unknown option $1; there are --fast and --only STAGES" ;;
  esac
  shift
done
wanted() { [[ ,$stages, == *,$1,* ]]; }

begin=$SECONDS
if [[ ${CI:-} == true && ! -d $ROOT/../shared/data ]]; then
  die "the shared test data is not at $ROOT/../shared/data, and CI may not run without it"
fi
"$ROOT/scripts/setup.sh" --tests

python=$ROOT/.venv/bin/python
reports=$ROOT/build/reports
rm -rf "$reports"
mkdir -p "$reports" "$LOGS"

# Each stage adds lines "STATUS<tab>STAGE<tab>COUNT<tab>WHAT", STATUS being passed, failed or skipped.
results=$reports/results.tsv
: >"$results"
note() { printf '%s\t%s\t%s\t%s\n' "$1" "$2" "$3" "$4" >>"$results"; }

# check STAGE WHAT COMMAND...: one check that passes or fails as a whole.
check() {
  local stage=$1 what=$2 start=$SECONDS log
  shift 2
  log=$LOGS/test-$stage-$(tr -c 'a-zA-Z0-9\n' _ <<<"$what").log
  say "-- $stage: $what"
  if "$@" >"$log" 2>&1 </dev/null; then
    note passed "$stage" 1 "$what ($((SECONDS - start)) s)"
  else
    tail -n 30 "$log" >&2
    note failed "$stage" 1 "$what; see $log"
  fi
}

# gtest_stage STAGE BUILD-FOLDER TIMEOUT ROOM...: the rooms' tests of a build, counted case by case. No room: all.
gtest_stage() {
  local stage=$1 build=$2 timeout=$3 filter='.*' code=0
  shift 3
  if (($#)); then filter="^($(IFS='|'; echo "$*"))\$"; fi
  say "-- $stage: the unit tests in $(basename "$build")/"
  GTEST_OUTPUT="xml:$reports/$stage/" ctest --test-dir "$build" -R "$filter" -j "$JOBS" --timeout "$timeout" \
    --output-on-failure --no-tests=error >"$LOGS/test-$stage.log" 2>&1 </dev/null || code=$?
  if ((code)); then grep -E 'FAILED|Failure|\*\*\*|ERROR|runtime error|WARNING: ThreadSanitizer' -A4 "$LOGS/test-$stage.log" | head -n 60 >&2 || true; fi
  "$python" "$ROOT/scripts/count_tests.py" "$stage" "$code" "$LOGS/test-$stage.log" "$reports/$stage" >>"$results"
}

# sanitizer_build STAGE FOLDER SANITIZERS TARGET...: false (and a failed line) where it does not build.
sanitizer_build() {
  local stage=$1 build=$ROOT/$2 sanitize=$3 start=$SECONDS
  shift 3
  say "-- $stage: building $(basename "$build")/ with -fsanitize=$sanitize"
  # The fuzz targets share the address sanitizer's build: one build less.
  local fuzz=OFF
  if [[ $sanitize == address* ]]; then fuzz=ON; fi
  if cmake -S "$ROOT" -B "$build" -G Ninja -DCMAKE_CXX_COMPILER=clang++-19 -DCMAKE_BUILD_TYPE=Release -DLODE_FUZZ=$fuzz \
    -DCMAKE_CXX_FLAGS_RELEASE='-O1 -g1' -DLODE_SANITIZE="$sanitize" -DLODE_BENCH=OFF >"$LOGS/$stage-build.log" 2>&1 &&
    cmake --build "$build" -j "$JOBS" --target "$@" >>"$LOGS/$stage-build.log" 2>&1 </dev/null; then
    say "   done in $((SECONDS - start)) s"
    return 0
  fi
  grep -E 'error|FAILED' -A3 "$LOGS/$stage-build.log" | head -n 30 >&2 || true
  note failed "$stage" 1 "the build; see $LOGS/$stage-build.log"
  return 1
}

test_targets() { # The test executables of the named rooms that exist; no room: of all.
  local room
  for room in "$@"; do
    if compgen -G "$ROOT/src/$room/*_test.cc" >/dev/null; then echo "${room}_test"; fi
  done
}

run_layering() {
  check layering 'the check can fail (self-test)' "$python" "$ROOT/scripts/check_layering.py" --self-test
  check layering 'rooms of src/' "$python" "$ROOT/scripts/check_layering.py"
}

run_format() {
  local files
  mapfile -t files < <(cd "$ROOT" && git ls-files 'src/*.h' 'src/*.cc' 'bench/*.h' 'bench/*.cc' 'fuzz/*.cc')
  check format "clang-format over ${#files[@]} files" bash -c 'cd "$1" && shift && clang-format-19 --dry-run -Werror "$@"' _ "$ROOT" "${files[@]}"
}

# What the measuring scripts make of given figures.
run_scripts() {
  check scripts 'count_instructions.py (self-test)' "$python" "$ROOT/scripts/count_instructions.py" --self-test
  check scripts 'compare_peers.py (self-test)' "$python" "$ROOT/scripts/compare_peers.py" --self-test
}

# Exit code 3 is "cannot be compared here" (another compiler, a processor without AVX2): counted as skipped, out loud.
run_counts() {
  local code=0 start=$SECONDS log=$LOGS/test-counts.log
  say '-- counts: instructions of fixed work, AVX2, against bench/instruction_counts.json'
  "$python" "$ROOT/scripts/count_instructions.py" >"$log" 2>&1 </dev/null || code=$?
  cat "$log" >&2
  case $code in
    0) note passed counts 1 "instructions of fixed work ($((SECONDS - start)) s)" ;;
    3) note skipped counts 1 "$(tail -n 1 "$log")" ;;
    *) note failed counts 1 "instructions of fixed work; see $log" ;;
  esac
}

run_unit() { gtest_stage unit "$ROOT/build" 300; }

# Whole KV stores against a plain model, from the same seed on each time; a million: kv_simulation --total 1000000.
run_simulation() {
  check simulation 'KV stores under faults for 30 s' "$ROOT/build/kv_simulation" --seconds 30 --seed 1
}

run_e2e() {
  local code=0
  say '-- e2e: tests/ against build/lode'
  (cd "$ROOT" && "$python" -m pytest tests -q --maxfail=20 -p no:cacheprovider --durations=10 \
    --junitxml="$reports/e2e/pytest.xml" >"$LOGS/test-e2e.log" 2>&1 </dev/null) || code=$?
  if ((code)); then grep -vE '^\s*$' "$LOGS/test-e2e.log" | tail -n 60 >&2; fi
  "$python" "$ROOT/scripts/count_tests.py" e2e "$code" "$LOGS/test-e2e.log" "$reports/e2e" >>"$results"
}

# Under a sanitizer the real models and the splits of every family take minutes, and a time measured there says nothing.
slow_tests='-*RealModel*:*InUnderASecond*:*RandomSplits*'

run_asan() {
  local targets
  mapfile -t targets < <(test_targets base platform gguf text quant kernels model plan memory kv engine serve cli)
  if sanitizer_build asan build-asan address,undefined "${targets[@]}"; then
    GTEST_FILTER=$slow_tests ASAN_OPTIONS=detect_stack_use_after_return=1:allocator_may_return_null=1 gtest_stage asan "$ROOT/build-asan" 600
  fi
}

run_tsan() {
  local targets
  mapfile -t targets < <(test_targets kv engine serve)
  if sanitizer_build tsan build-tsan thread "${targets[@]}"; then
    GTEST_FILTER=$slow_tests TSAN_OPTIONS=halt_on_error=1 gtest_stage tsan "$ROOT/build-tsan" 600 kv engine serve
  fi
}

run_fuzz() {
  local sources=() source name folder
  mapfile -t sources < <(find "$ROOT/src" -name '*_fuzz.cc' | sort)
  if ((${#sources[@]} == 0)); then
    note skipped fuzz 1 'no fuzz target in this version'
    return
  fi
  sanitizer_build fuzz build-asan address,undefined $(basename -s .cc "${sources[@]}") || return 0
  for source in "${sources[@]}"; do
    name=$(basename -s .cc "$source")
    # What it finds goes into a folder of the build; seeds, where there are any, lie in fuzz/NAME/.
    folder=$ROOT/build-asan/corpus/$name
    mkdir -p "$folder"
    local seeds=()
    if [[ -d $ROOT/fuzz/${name%_fuzz} ]]; then seeds+=("$ROOT/fuzz/${name%_fuzz}"); fi
    check fuzz "$name for 10 s" bash -c 'cd "$1" && shift && "$@"' _ "$ROOT/build-asan" "$ROOT/build-asan/$name" \
      -max_total_time=10 -timeout=10 -rss_limit_mb=2048 -max_len=65536 -print_final_stats=1 "$folder" "${seeds[@]}"
  done
}

# clang-tidy over the smaller rooms and those that read what strangers send, which covers the habits in the time there is:
# a file takes 10 s without its analyzer, and up to a minute with it.
tidy_over() { # STAGE CHECKS
  local files
  mapfile -t files < <(cd "$ROOT" && git ls-files 'src/base/*.cc' 'src/gguf/*.cc' 'src/kv/*.cc' 'src/plan/*.cc' | grep -v _test.cc | grep -v _fuzz.cc)
  check "$1" "clang-tidy ($2) over ${#files[@]} files of base, gguf, kv and plan" bash -c \
    'cd "$1" && checks=$2 && shift 2 && printf "%s\n" "$@" | xargs -P "$(nproc)" -n 1 clang-tidy-19 -p build --quiet "--checks=$checks"' \
    _ "$ROOT" "$2" "${files[@]}"
}
run_tidy() { tidy_over tidy '-clang-analyzer-*'; }
run_analyzer() { tidy_over analyzer '-*,clang-analyzer-*,-clang-analyzer-optin.performance.Padding'; }

for stage in layering format scripts unit simulation counts e2e asan tsan fuzz tidy analyzer; do
  if wanted "$stage"; then
    run_"$stage"
  else
    note skipped "$stage" 1 'not asked for'
  fi
done
note skipped cuda 1 'needs a card: scripts/gpu_test.sh, see docs/gpu.md; not compiled here (LODE_CUDA is off by default)'

say ''
exec "$python" "$ROOT/scripts/count_tests.py" --summary "$results" "$((SECONDS - begin))"
