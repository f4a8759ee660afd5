#!/usr/bin/env bash
# Everything that needs RDMA devices, in the machine of vm.sh:   tests/rdma/run.sh PYTHON
# Test programs are built outside, where that is faster, and run inside.
set -euo pipefail
python=$1
features=weft-transport-rdma/devices
packages=(-p weft-transport-rdma -p weft-runtime)
tests=(--test conformance --test failures --test rdma)

programs() { # the programs that cargo has built, by the names of their tests
  cargo test --no-run --locked --quiet --message-format=json "${packages[@]}" --features "$features" "${tests[@]}" |
    "$python" -c 'import json, sys
for line in sys.stdin:
    message = json.loads(line)
    if message.get("executable") and message["profile"]["test"] and message["target"]["kind"] == ["test"]:
        print(message["target"]["name"], message["executable"])'
}

mkdir -p build/rdma-vm
programs >build/rdma-vm/programs
VM_TIMEOUT=${VM_TIMEOUT:-1800} tests/rdma/vm.sh tests/rdma/guest.sh "$python" build/rdma-vm/programs
