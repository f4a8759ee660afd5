#!/usr/bin/env bash
# torch's tests of symmetric memory and of the wrapper, with an extension under AddressSanitizer. The interpreter and
# torch are as installed, and load the sanitizer first, with the library whose exceptions it follows.
set -euo pipefail
library() { "${CC:-cc}" -print-file-name="$1"; }
host=$(rustc -vV | sed -n 's/^host: //p')
RUSTFLAGS="-Zsanitizer=address" PYO3_PYTHON=$PWD/.venv/bin/python cargo +nightly build --target "$host" \
  --target-dir target/asan --package weft-bindings --features pyo3/extension-module --locked --quiet
rm -rf build/asan
mkdir -p build/asan
cp -r python build/asan/python
cp "target/asan/$host/debug/lib_weft.so" build/asan/python/weft/_weft.abi3.so
PYTHONPATH=$PWD/build/asan/python LD_PRELOAD="$(library libasan.so) $(library libstdc++.so)" PYTHONMALLOC=malloc \
  ASAN_OPTIONS=detect_leaks=0:abort_on_error=1 .venv/bin/pytest -q tests/torch/test_symmetric.py tests/torch/test_overlap.py
