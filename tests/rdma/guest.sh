#!/usr/bin/env bash
# What run.sh runs in the virtual machine:   guest.sh PYTHON FILE-OF-PROGRAMS
# Each step has a deadline; the first that fails ends it.
set -euo pipefail
python=$1 programs=$2

program() { # the program of this test
  awk -v name="$1" '$1 == name {print $2}' "$programs"
}

step() { # step SECONDS NAME COMMAND...: runs it, and says how long it took
  local limit=$1 name=$2 begin=$SECONDS
  shift 2
  echo "=== $name"
  timeout "$limit" "$@" || { echo "=== $name: failed with status $? after $((SECONDS - begin)) s"; exit 1; }
  echo "=== $name: $((SECONDS - begin)) s"
}

step 60 "failures" "$(program failures)"
step 600 "conformance over one device and two" "$(program conformance)" --test-threads 2
step 600 "groups" "$(program rdma)" --test-threads 1 --include-ignored
step 500 "processes" "$python" tests/rdma/ranks.py
