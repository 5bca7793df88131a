# What the scripts share: where the checkout is, progress lines, failures in one clear line. Sourced, never run.

ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
LOGS=$ROOT/build/logs
JOBS=$(nproc)

# Objects are found again from another folder too: paths inside the checkout count relative to it.
export CCACHE_BASEDIR=$ROOT CCACHE_NOHASHDIR=1

say() { printf '%s\n' "$*"; }

die() {
  printf '%s: failed: %s\n' "$(basename "$0")" "$*" >&2
  exit 1
}

# run_logged NAME WHAT COMMAND...: runs it with its output in build/logs/NAME.log; says how long it took, and on failure
# the last lines of that log and one line with what failed and where the rest is.
run_logged() {
  local name=$1 what=$2 start=$SECONDS
  shift 2
  mkdir -p "$LOGS"
  say "-- $what"
  if ! "$@" >"$LOGS/$name.log" 2>&1 </dev/null; then
    tail -n 25 "$LOGS/$name.log" >&2
    die "$what; the whole output is in $LOGS/$name.log"
  fi
  if ((SECONDS - start >= 3)); then say "   done in $((SECONDS - start)) s"; fi
}
