#!/usr/bin/env bash
# Wheels for x86-64 and aarch64, and the sdist, in build/dist. zig is the C compiler and linker: it has the symbols
# of every version of glibc, for every architecture.
set -euo pipefail
export PATH=$PWD/build/release/bin:$PATH PYO3_PYTHON=$PWD/build/release/bin/python
rm -rf build/dist
for target in x86_64-unknown-linux-gnu aarch64-unknown-linux-gnu; do
  rustup target add "$target"
  maturin build --quiet --release --locked --target "$target" --zig --compatibility manylinux_2_28 --out build/dist
done
maturin sdist --out build/dist
.venv/bin/uv build --quiet --no-create-gitignore --out-dir build/dist python
