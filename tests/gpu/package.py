"""The wheel of weft on a machine with a GPU, which has torch but no compiler."""

from __future__ import annotations

import os
import shutil
import zipfile
from pathlib import Path

ROOT = Path(__file__).parents[2]
_PACKAGE = ROOT / "build" / "gpu" / "package"


def environment(**settings: object) -> dict[str, str]:
    """Variables for processes that import weft from the newest wheel in build/."""
    wheels = [*ROOT.glob("build/wheels/weft-*.whl"), *ROOT.glob("build/dist/weft-*x86_64.whl")]
    if not wheels:
        raise SystemExit("no wheel in build/wheels or build/dist: run `make wheel` where there is a compiler")
    wheel = max(wheels, key=lambda path: path.stat().st_mtime)
    shutil.rmtree(_PACKAGE, ignore_errors=True)
    with zipfile.ZipFile(wheel) as files:
        files.extractall(_PACKAGE)
    paths = [str(_PACKAGE), str(ROOT), os.environ.get("PYTHONPATH", "")]
    variables = {"PYTHONPATH": os.pathsep.join(path for path in paths if path)}
    return {**os.environ, **variables, **{name: str(value) for name, value in settings.items()}}
