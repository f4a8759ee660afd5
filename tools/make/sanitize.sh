#!/usr/bin/env bash
# Concurrency tests of the runtime and the transports under ThreadSanitizer.
set -euo pipefail
host=$(rustc -vV | sed -n 's/^host: //p')
export RUSTFLAGS="-Zsanitizer=thread"
tests() {
  cargo +nightly test -Zbuild-std --target "$host" --target-dir target/tsan --locked --quiet "$@"
}
transports=(--package weft-transport-testing --package weft-transport-shm --package weft-transport-tcp)
tests "${transports[@]}" --test conformance --test loopback --test strict
tests --package weft-runtime --test together --test messages --test failures --test leaving --test cuts \
  --test one_sided --test shrink --test registration
# A forked child goes on with threads, which the sanitizer allows only if asked to.
TSAN_OPTIONS=die_after_fork=0 tests --package weft-transport --package weft-transport-tcp --package weft-runtime \
  --test fork --test forks
tests --package weft-transport-rdma --tests
