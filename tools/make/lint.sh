#!/usr/bin/env bash
# All checks that run nothing: clippy, ruff, mypy, the stubs, layers of Python packages, messages of commits, width and words of prose,
# and whether generated pages are current.
#   tools/make/lint.sh SOURCE ...
set -euo pipefail
bin=.venv/bin
nice cargo clippy --workspace --all-targets --locked --quiet -- -D warnings
$bin/ruff check "$@"
nice $bin/mypy
nice $bin/stubtest weft._weft
$bin/lint-imports --no-cache --no-logo
for check in commits prose words; do
  $bin/python -m "tools.check_$check"
done
# In seconds here, not after an hour of tests.
$bin/pytest --quiet tests/documentation tests/unit/test_config.py tests/torch/test_ecosystem_page.py -k current
