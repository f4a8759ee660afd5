"""Test that files and folders of a crate import each other in no cycle."""

from pathlib import Path

import pytest

from tools.crate_cycles import Crate, crate_cycles, crates, cycles, folder_cycles


@pytest.mark.parametrize("crate", crates())
def test_files_of_a_crate_have_no_cycle(crate: str) -> None:
    assert crate_cycles(crate) == []


@pytest.mark.parametrize("crate", crates())
def test_folders_of_a_crate_have_no_cycle(crate: str) -> None:
    assert folder_cycles(crate) == []


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
