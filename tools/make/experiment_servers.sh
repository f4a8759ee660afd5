#!/usr/bin/env bash
# Parameter servers in both layouts beside all-reduce, Gloo and RPC:   tools/make/experiment_servers.sh [--quick]
set -euo pipefail
experiment() {
  .venv/bin/weft experiment parameter-server "${@:2}" --out "build/experiment/servers-$1"
}
experiment shm --model cnn,social-graph,dialogue --workers 1,2,4,8 --transport shm "$@"
experiment 1 --model cnn,social-graph,dialogue,alexnet --workers 2,4 --emulated --gbps 1 "$@"
experiment 10 --model alexnet --workers 4 --batch 2 --emulated --gbps 10 "$@"
experiment 10 --model vgg16 --workers 2 --batch 2 --emulated --gbps 10 "$@"
