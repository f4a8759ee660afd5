#!/usr/bin/env bash
# Checks dependencies: licences, duplicates and sources of crates, and known vulnerabilities of crates and of
# Python packages:   tools/make/audit.sh [--offline]
# Without a network, --offline leaves out the databases of vulnerabilities, and says so.
set -euo pipefail
cd "$(dirname "$0")/../.."

if ! cargo deny --version >/dev/null 2>&1; then
  [ "${1:-}" != --offline ] || { echo "cargo-deny is missing: cargo install cargo-deny --locked" >&2; exit 1; }
  cargo install cargo-deny --locked --quiet
fi
if [ "${1:-}" = --offline ]; then
  cargo deny --offline check licenses bans sources
  echo "not checked without a network: advisories of crates and of Python packages"
  exit
fi
cargo deny check
for lock in requirements*.lock; do
  echo "$lock"
  build/quality/bin/python -m pip_audit --requirement "$lock" --require-hashes --disable-pip --progress-spinner off
done
