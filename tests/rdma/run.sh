#!/usr/bin/env bash
# Everything that needs RDMA devices, in the machine of vm.sh:   tests/rdma/run.sh PYTHON [STAGE ...]
# Test programs are built outside, where that is faster, and run inside.
set -euo pipefail
python=$1
shift
features=weft-transport-rdma/devices
packages=(-p weft-transport-rdma -p weft-runtime)
tests=(--test conformance --test failures --test rdma)

programs() { # the programs that cargo has built, by the names of their crates and tests
  cargo test --no-run --locked --quiet --message-format=json-render-diagnostics \
    "${packages[@]}" --features "$features" "${tests[@]}" |
    "$python" -c 'import json, pathlib, sys
for line in sys.stdin:
    message = json.loads(line)
    if message.get("executable") and message["profile"]["test"] and message["target"]["kind"] == ["test"]:
        crate = pathlib.Path(message["manifest_path"]).parent.name
        print(crate + "/" + message["target"]["name"], message["executable"])'
}

mkdir -p build/rdma-vm
programs >build/rdma-vm/programs
VM_TIMEOUT=${VM_TIMEOUT:-1800} tests/rdma/vm.sh tests/rdma/guest.sh "$python" build/rdma-vm/programs "$@"
