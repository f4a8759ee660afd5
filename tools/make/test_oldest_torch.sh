#!/usr/bin/env bash
# The torch tests with the oldest torch that weft supports, in an environment of its own:
#   tools/make/test_oldest_torch.sh ENVIRONMENT
set -euo pipefail
[ -x "$1/bin/python" ] || .venv/bin/uv venv --quiet --python .venv/bin/python "$1"
.venv/bin/uv pip install --quiet --python "$1/bin/python" --reinstall-package weft-collectives --reinstall-package weft-lab \
  build/wheels/*.whl "torch==2.11.*" pytest
"$1/bin/pytest" tests/torch
