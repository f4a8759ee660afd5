"""Tests of the modules loaded by `import weft`, in a separate interpreter."""

import json
import subprocess
import sys

import pytest

import weft

HEAVY = ("bench", "drawing", "emulation", "planning", "schedule", "simulation", "torch", "tuning")


def loaded(program):
    """The modules that a program has loaded in the end."""
    ran = subprocess.run(
        [sys.executable, "-c", f"{program}\nimport json, sys; print(json.dumps(list(sys.modules)))"],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    return json.loads(ran.stdout)


def heavy(modules):
    names = ("torch", "matplotlib", *(f"weft.{name}" for name in HEAVY))
    return [module for module in modules if module.startswith(tuple(f"{name}." for name in names)) or module in names]


def test_import_loads_what_communication_needs():
    assert heavy(loaded("import weft")) == []


def test_a_group_of_one_rank_loads_no_more():
    program = "import numpy, weft\nwith weft.init(0, 1) as group: group.all_reduce(numpy.ones(3)[::2], algorithm=None)"
    assert heavy(loaded(program)) == []


@pytest.mark.parametrize("name", [name for name in HEAVY if name != "emulation"])
def test_modules_are_loaded_when_first_used(name):
    assert f"weft.{name}" in loaded(f"import weft; weft.{name}")


def test_what_is_not_there_is_told():
    with pytest.raises(AttributeError, match="module 'weft' has no attribute 'nothing'"):
        weft.nothing  # noqa: B018


def test_import_stays_fast():
    """150 ms of a core, most of them NumPy's: counted in modules, which no busy machine changes."""
    added = set(loaded("import weft")) - set(loaded("import numpy"))
    own = {module for module in added if module.partition(".")[0] == "weft"}
    assert len(own) <= 26, sorted(own)
    assert len(added - own) <= 45, sorted(added - own)
