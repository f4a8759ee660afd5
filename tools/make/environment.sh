#!/usr/bin/env bash
# Virtual environments with locked packages:
#   tools/make/environment.sh .venv UV_VERSION        the main one, from requirements.lock
#   tools/make/environment.sh build/NAME              one from requirements-NAME.lock, which sees .venv's packages behind
set -euo pipefail
environment=$1
if [ "$environment" = .venv ]; then
  command -v cargo >/dev/null || { echo "weft is built with Rust: install it first (rustup)" >&2; exit 1; }
  [ -x .venv/bin/python ] || python3 -m venv .venv
  .venv/bin/python -m pip install --quiet --disable-pip-version-check "uv==$2"
  lock=requirements.lock
else
  .venv/bin/python -m venv --clear --without-pip "$environment"
  site=$(.venv/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
  echo "import site; site.addsitedir('$site')" >"$(echo "$environment"/lib/python3*/site-packages)/behind.pth"
  lock=requirements-${environment#build/}.lock
fi
.venv/bin/uv pip install --quiet --compile-bytecode --python "$environment/bin/python" --require-hashes -r "$lock"
touch "$environment/.dependencies"
