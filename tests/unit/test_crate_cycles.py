"""Test that files of a crate import each other in no cycle, but those of a shrinking list."""

from pathlib import Path

import pytest

from tools.crate_cycles import Crate, crate_cycles, crates, cycles

KNOWN: dict[str, list[list[str]]] = {
    "algorithms": [
        ["builder.rs", "cost.rs", "formula.rs", "hierarchy.rs", "refusal.rs", "request.rs", "selection.rs", "units.rs"],
    ],
}
"""Cycles of today, to be cut. Nothing is added here."""


@pytest.mark.parametrize("crate", crates())
def test_files_of_a_crate_import_each_other_in_no_cycle(crate: str) -> None:
    assert crate_cycles(crate) == KNOWN.get(crate, [])


def test_a_cycle_through_a_re_export_is_found(tmp_path: Path) -> None:
    files = {
        "lib.rs": "mod a;\nmod b;\n#[cfg(test)]\nmod tests;",
        "a.rs": "use crate::b::{self, Two};\npub struct One;",
        "b/mod.rs": "mod inner;\npub(crate) use inner::Two;",
        "b/inner.rs": "use super::super::a::One;\npub struct Two(One);",
    }
    (tmp_path / "b").mkdir()
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    edges = Crate(tmp_path).imports()
    assert edges == {"a.rs": {"b/inner.rs"}, "b/inner.rs": {"a.rs"}}
    assert cycles(edges) == [["a.rs", "b/inner.rs"]]
