"""Tests of the modules loaded by `import weft`, in a separate interpreter."""

import ast
import importlib
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

import weft

HEAVY = ("drawing", "planning", "schedule", "simulation", "torch", "tuning")


def loaded(program):
    """The modules that a program has loaded in the end."""
    ran = subprocess.run(
        [sys.executable, "-c", f"{program}\nimport json, sys; print(json.dumps(list(sys.modules)))"],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    return json.loads(ran.stdout.splitlines()[-1])


def heavy(modules):
    names = ("torch", "matplotlib", "weft_lab", *(f"weft.{name}" for name in HEAVY))
    return [module for module in modules if module.startswith(tuple(f"{name}." for name in names)) or module in names]


def test_import_alone_loads_nothing():
    added = set(loaded("import weft")) - set(loaded("import importlib, typing"))
    assert {module for module in added if module.partition(".")[0] in ("weft", "numpy")} == {"weft"}


def test_names_load_only_modules_for_communication():
    assert heavy(loaded("from weft import *")) == []


def test_names_match_modules_of_type_checkers():
    (checked,) = [node for node in ast.parse(Path(weft.__file__).read_text()).body if isinstance(node, ast.If)]
    seen = {name.name: node.module for node in checked.body for name in node.names}
    assert sorted(seen) == weft.__all__
    for name, module in seen.items():
        assert getattr(weft, name) is getattr(importlib.import_module(module), name)
        assert name in dir(weft)


@pytest.mark.parametrize(("option", "core"), [("--help", False), ("--version", True), ("--nothing", False)])
def test_options_without_command_load_no_command(option, core):
    """A tenth of a second of a core: counted in modules, which no busy machine changes."""
    modules = loaded(f"from weft import cli\ntry: cli.main([{option!r}])\nexcept SystemExit: pass")
    assert not [module for module in modules if module.partition(".")[0] == "numpy"]
    assert ("weft._weft" in modules) == core  # which knows the version
    own = {module for module in modules if module.partition(".")[0] == "weft"} - {"weft._weft"}
    assert own == {"weft", "weft.cli", "weft.cli.command"}
    assert len(modules) <= 110, sorted(modules)


def test_a_group_of_one_rank_loads_no_more():
    program = "import numpy, weft\nwith weft.init(0, 1) as group: group.all_reduce(numpy.ones(3)[::2], algorithm=None)"
    assert heavy(loaded(program)) == []


@pytest.mark.parametrize("name", HEAVY)
def test_modules_are_loaded_when_first_used(name):
    assert f"weft.{name}" in loaded(f"import weft; weft.{name}")


IN_FORKS = """
import os
import sys

import weft.torch

for name in sys.argv[1:]:  # each without the modules that another one loads
    if (fork := os.fork()) == 0:
        try:
            eval(name)
        except ModuleNotFoundError as error:
            assert "weft" not in error.name
        os._exit(0)
    assert os.waitpid(fork, 0)[1] == 0, name
"""


def test_classes_that_texts_name_need_no_further_import():
    """Of weft.torch's modules, in messages and pages; some need packages that are not here."""
    root = Path(__file__).parents[2]
    texts = [*root.glob("python/weft/**/*.py"), *root.glob("docs/**/*.md"), root / "README.md"]
    named = {name for text in texts for name in re.findall(r"\bweft\.torch\.[a-z_]+\.[A-Z]\w+", text.read_text())}
    assert "weft.torch.modes.Wire" in named
    subprocess.run([sys.executable, "-c", IN_FORKS, *sorted(named)], check=True, timeout=240)


def test_missing_attribute_is_named():
    with pytest.raises(AttributeError, match="module 'weft' has no attribute 'nothing'"):
        weft.nothing  # noqa: B018


def test_loading_a_group_stays_fast():
    """150 ms of a core, most of them NumPy's: counted in modules, which no busy machine changes.

    What a made group's log needs is among them: there may be no descriptor left for it then.
    """
    added = set(loaded("import weft; weft.init")) - set(loaded("import numpy"))
    own = {module for module in added if module.partition(".")[0] == "weft"}
    folders = {module.rpartition(".")[0] for module in own} - {"", "weft"}  # empty: there to be imported from
    assert all(not hasattr(importlib.import_module(folder), "__all__") for folder in folders)
    assert len(own - folders) <= 29, sorted(own)
    assert len(added - own) <= 45, sorted(added - own)
