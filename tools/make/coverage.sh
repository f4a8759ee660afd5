#!/usr/bin/env bash
# Measures which lines tests execute: Python by coverage.py, child processes included; Rust by cargo llvm-cov,
# where it and llvm-tools are installed:   tools/make/coverage.sh [PYTEST ARGUMENT ...]
set -euo pipefail
cd "$(dirname "$0")/../.."
python=build/quality/bin/python

rm -rf build/coverage
mkdir -p build/coverage
[ $# -gt 0 ] || set -- tests/unit tests/multiprocess tests/torch
# Coverage loads modules, which those tests count.
status=0
"$python" -m coverage run -m pytest "$@" --deselect tests/unit/test_import.py || status=$?
"$python" -m coverage combine --quiet
"$python" -m coverage html --quiet --directory build/coverage/python
echo "Python: $("$python" -m coverage report --format=total) % of lines and branches (build/coverage/python/index.html)"

if cargo llvm-cov --version >/dev/null 2>&1 && rustup component list --installed | grep -q '^llvm-tools'; then
  cargo llvm-cov --workspace --exclude weft-bindings --locked --quiet --html --output-dir build/coverage/rust
  cargo llvm-cov report | tail -n 1
else
  echo "Rust: not measured; install cargo-llvm-cov, and llvm-tools by rustup component add llvm-tools"
fi
exit "$status"
