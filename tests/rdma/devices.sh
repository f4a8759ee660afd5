#!/usr/bin/env bash
# Memory of other devices, with a library that takes it (dma_buf.c), where the adapters here do not:
#   devices.sh PYTHON CONFORMANCE-PROGRAM GROUPS-PROGRAM
set -euo pipefail
library=$PWD/build/rdma-vm/dma_buf.so
cc -O2 -Wall -Wextra -Werror -shared -fPIC -o "$library" tests/rdma/dma_buf.c
export LD_PRELOAD=$library TEST_DMA_BUF=1
"$2" memory_of_a_device
"$3" --test-threads 1 --include-ignored memory_of_a_device
"$1" tests/rdma/ranks.py devices
