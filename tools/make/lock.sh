#!/usr/bin/env bash
# Renews the lock files from pyproject.toml. Those of environments behind .venv take its versions.
set -euo pipefail
compile=(.venv/bin/uv pip compile --quiet --upgrade --universal --generate-hashes --no-header --python-version 3.11 pyproject.toml)
"${compile[@]}" --extra dev -o requirements.lock
for extra in ecosystem launchers quality release; do
  "${compile[@]}" --extra "$extra" --constraint requirements.lock -o "requirements-$extra.lock"
done
"${compile[@]}" --extra site -o requirements-site.lock
