"""A rank of one case: `python tests/gpu/member.py CASE`, with the variables of torchrun.

It imports nothing by the name `tests`: an installed package may have it.
"""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

sys.path.insert(0, str(Path(__file__).parents[2]))

from tools.gpu import rank

HERE = Path(__file__).parent
MODULES = ("cases", "probes")
"""The files whose functions are cases."""


def main() -> None:
    modules = [_module(name) for name in MODULES]
    found = [getattr(module, sys.argv[1]) for module in modules if hasattr(module, sys.argv[1])]
    with rank.group("weft") as place:
        found[0](*place)


def _module(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, HERE / f"{name}.py")
    assert spec is not None and spec.loader is not None, "it is a file of Python"
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


if __name__ == "__main__":
    main()
