#!/usr/bin/env bash
# What run.sh runs in the virtual machine:   guest.sh PYTHON FILE-OF-PROGRAMS [STAGE ...]
# Stages: failures, conformance, groups, processes, devices (all). Each has a deadline; the first that fails
# ends it.
set -euo pipefail
python=$1 programs=$2
shift 2
stages=${*:-failures conformance groups processes devices}

program() { # the program of this test
  awk -v name="$1" '$1 == name {print $2}' "$programs" | grep . || { echo "guest.sh: $programs has no program $1" >&2; return 1; }
}

stamped() { # what comes in, each line with the seconds since the start
  while IFS= read -r line; do printf '%4d  %s\n' "$SECONDS" "$line"; done
}

step() { # step SECONDS NAME COMMAND...: runs it, and says how long it took
  local limit=$1 name=$2 begin=$SECONDS
  shift 2
  echo "=== $name"
  timeout "$limit" "$@" 2>&1 | stamped || { echo "=== $name: failed with status $? after $((SECONDS - begin)) s"; exit 1; }
  echo "=== $name: $((SECONDS - begin)) s"
}

for stage in $stages; do
  case $stage in
    failures) command=("$(program transport-rdma/failures)") limit=60 ;;
    conformance) command=("$(program transport-rdma/conformance)" --test-threads 2) limit=600 ;;
    groups) command=("$(program runtime/rdma)" --test-threads 1 --include-ignored) limit=900 ;;
    processes) command=("$python" tests/rdma/ranks.py) limit=600 ;;
    devices) command=(tests/rdma/devices.sh "$python" "$(program transport-rdma/conformance)" "$(program runtime/rdma)") limit=600 ;;
    *) echo "guest.sh: there is no stage $stage: failures, conformance, groups, processes, devices"; exit 2 ;;
  esac
  step "$limit" "$stage" "${command[@]}"
done
echo "=== all passed: $stages; $SECONDS s"
