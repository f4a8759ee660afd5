"""Tests of the layers: imports against the drawings of ARCHITECTURE.md; the code map.

The page has two drawings, of the crates and of the runtime's folders. Every import must go along a
path of arrows, every arrow must be an import, and there is no circle. Every module has a first
sentence, which `make code-map` prints; every file and note that the page names exists.
"""

import re
import tomllib
from collections import defaultdict
from pathlib import Path

import pytest

from tools.code_map import modules, sentence

ROOT = Path(__file__).parents[2]
RUNTIME = ROOT / "crates" / "runtime" / "src"
TESTS = re.compile(r"#\[cfg\(test\)\]\s*mod \w+ \{.*", re.DOTALL)

Edges = dict[str, set[str]]


def drawn(title: str, text: str) -> Edges:
    """The arrows of the drawing under this title."""
    block = re.search(rf"### {title}\n.*?```mermaid\n(.*?)```", text, re.DOTALL)
    assert block, f"ARCHITECTURE.md has no drawing under {title!r}"
    edges: Edges = defaultdict(set)
    for line in block[1].splitlines():
        if "-->" in line:
            starts, ends = ([name.strip() for name in side.split("&")] for side in line.split("-->"))
            for start in starts:
                edges[start].update(ends)
    return edges


def reached(edges: Edges, start: str) -> set[str]:
    """All names that arrows lead to from here."""
    found: set[str] = set()
    front = [start]
    while front:
        new = edges.get(front.pop(), set()) - found
        found |= new
        front += new
    return found


def offences(imports: dict[tuple[str, str], str], edges: Edges) -> list[str]:
    """Imports against the arrows, arrows without imports, circles."""
    wrong = [
        f"{where}: {start} imports {end}, but no arrow leads there"
        for (start, end), where in sorted(imports.items())
        if end not in reached(edges, start)
    ]
    wrong += [
        f"the arrow {start} --> {end} stands for no import"
        for start, ends in sorted(edges.items())
        for end in sorted(ends)
        if (start, end) not in imports
    ]
    return wrong + [f"a circle through {name}" for name in sorted(edges) if name in reached(edges, name)]


def crate_imports() -> dict[tuple[str, str], str]:
    imports = {}
    for manifest in sorted(ROOT.glob("crates/*/Cargo.toml")):
        for name in tomllib.loads(manifest.read_text()).get("dependencies", {}):
            if name.startswith("weft-"):
                imports[manifest.parent.name, name.removeprefix("weft-")] = str(manifest.relative_to(ROOT))
    return imports


def folder_imports(root: Path = RUNTIME) -> dict[tuple[str, str], str]:
    folders = {path.name for path in root.iterdir() if path.is_dir()}
    imports = {}
    for file in sorted(root.rglob("*.rs")):
        folder = file.relative_to(root).parts[0]
        if folder not in folders or file.name == "tests.rs":
            continue
        for name in re.findall(r"\bcrate::(\w+)", TESTS.sub("", file.read_text())):
            if name in folders and name != folder:
                imports[folder, name] = f"{file.relative_to(root)} ({folder} -> {name})"
    return imports


@pytest.fixture(scope="module")
def page() -> str:
    return (ROOT / "ARCHITECTURE.md").read_text()


def test_crates_depend_on_each_other_as_drawn(page: str) -> None:
    assert offences(crate_imports(), drawn("Crates", page)) == []


def test_runtime_folders_import_as_drawn(page: str) -> None:
    assert offences(folder_imports(), drawn("The runtime's folders", page)) == []


def test_an_import_upwards_is_named(tmp_path: Path) -> None:
    for folder, text in [("upper", "use crate::lower::Thing;"), ("lower", "use crate::upper::Other;")]:
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "file.rs").write_text(text)
    found = offences(folder_imports(tmp_path), {"upper": {"lower"}})
    assert found == ["lower/file.rs (lower -> upper): lower imports upper, but no arrow leads there"]


def test_circles_and_idle_arrows_are_named() -> None:
    assert offences({("a", "b"): "x", ("b", "a"): "y"}, {"a": {"b"}, "b": {"a"}}) == [
        "a circle through a",
        "a circle through b",
    ]
    assert offences({}, {"a": {"b"}}) == ["the arrow a --> b stands for no import"]


def test_every_module_is_in_the_code_map() -> None:
    found = list(modules(ROOT))
    assert len(found) > 300
    assert [str(path) for path in found if not sentence(ROOT / path)] == []


def test_notes_that_pages_name_stand_in_the_code() -> None:
    pages = [ROOT / "ARCHITECTURE.md", *(ROOT / "docs/explanation").glob("*.md")]
    named = {note for page in pages for note in re.findall(r"\[Note:\s([^\]]+)\]", page.read_text())}
    code = "".join((ROOT / path).read_text() for path in modules(ROOT))
    assert named
    assert [note for note in sorted(named) if f"[Note: {' '.join(note.split())}]" not in code] == []


def test_places_for_new_things_exist(page: str) -> None:
    section = page.split("## Where something new goes")[1].split("\n## ")[0]
    for name in re.findall(r"`([\w./]+/[\w./]*)`", section):
        assert (ROOT / name).exists() or any(ROOT.glob(f"crates/*/src/{name}")), name
