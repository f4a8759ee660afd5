#!/usr/bin/env bash
# Every reader of foreign bytes under libFuzzer:   tools/make/fuzz.sh RUNS SECONDS SANITIZER
set -euo pipefail
cargo fuzz --version >/dev/null 2>&1 || cargo install cargo-fuzz --locked --quiet
for corpus in fuzz/corpus/*; do
  target=$(basename "$corpus")
  mkdir -p "build/fuzz/$target"
  echo "$target"
  cargo +nightly fuzz run --sanitizer "$3" "$target" "build/fuzz/$target" "$corpus" -- \
    "-runs=$1" "-max_total_time=$2" -verbosity=0 -print_final_stats=1
done
