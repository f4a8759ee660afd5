#!/usr/bin/env bash
# Tests of kernels, transports and runtime for aarch64, under an emulator. It has neither TCP_INFO nor a way to start
# itself anew: tests that need them are left out.
set -euo pipefail
target=aarch64-unknown-linux-gnu
export CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER=aarch64-linux-gnu-gcc
export CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUNNER="qemu-aarch64 -cpu max,sve512=on -L /usr/aarch64-linux-gnu"
rustup target add "$target"
cargo test --target "$target" --locked --quiet --lib --test conformance --test connections --test loopback --test strict \
  --test one_source --test reduce --test representation --package weft-kernels --package weft-schedule \
  --package weft-transport --package weft-transport-testing --package weft-transport-shm --package weft-transport-tcp \
  -- --skip congestion --skip the_kernel_counts_traffic
cargo test --target "$target" --locked --quiet --package weft-runtime --test together --test messages --test setting_up
