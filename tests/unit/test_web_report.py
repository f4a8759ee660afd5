"""Tests of `weft report`: recognized files, and a page without outside references."""

import base64
import dataclasses
import json
import re
import shutil
import subprocess
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree

import pytest

import weft
from tests.unit.test_pictures import ROWS
from tests.unit.test_tracing import collective, late_files, record, written
from weft.cli import main
from weft.drawing import gantt, lanes
from weft.tracing import jobs
from weft.tracing.record import parse
from weft_lab.bench import rows
from weft_lab.web_report import ReportInputs, document

BUCKET = {
    "bucket": 0, "parameters": ["weight", "<bias>"], "nbytes": 4096, "sent_bytes": 8192, "algorithm": "ring",
    "priority": 1, "window_s": 0.01, "communication_s": 0.004, "exposed_s": 0.001,
}  # fmt: skip
LAYER = {
    "layer": "net.0", "nbytes": 4096, "algorithms": ["ring"], "window_s": 0.01, "communication_s": 0.004,
    "exposed_s": None,
}  # fmt: skip
TRAINING = {
    "plan": "abc", "mode": "exact", "steps": 3, "forward_s": 0.01, "backward_s": 0.01, "memory_bytes": 9000,
    "buckets": [BUCKET], "layers": [LAYER], "communication_s": 0.004, "exposed_s": 0.001,
}  # fmt: skip


class References(HTMLParser):
    """Everything that a page would fetch, and its texts."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.fetched: list[str] = []
        self.tags: set[str] = set()
        self.texts: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag, attributes):
        self.tags.add(tag)
        named = dict(attributes)
        self.fetched += [named[name] or "" for name in ("src", "href", "xlink:href", "data", "action") if name in named]

    def handle_data(self, data):
        self.texts.append(data)


@pytest.fixture
def page(tmp_path: Path) -> Path:
    rows.write(tmp_path / "run.json", ROWS)
    records = written(tmp_path / "records", late_files())
    (tmp_path / "training.json").write_text(json.dumps(TRAINING))
    words = [tmp_path / "run.json", records, tmp_path / "training.json", "--output", tmp_path / "new" / "run.html"]
    assert main(["report", *map(str, words), "--title", "a <run>"]) == 0
    return tmp_path / "new" / "run.html"


def test_the_page_refers_to_nothing_outside(page: Path) -> None:
    text = page.read_text()
    found = References(text)
    assert all(reference.startswith(("#part", "data:image/svg+xml;base64,")) for reference in found.fetched)
    assert not {"script", "link", "iframe", "object", "base"} & found.tags
    pictures = [base64.b64decode(data).decode() for data in re.findall(r"base64,([^\"]+)", text)]
    assert pictures and "default-src 'none'" in text
    for drawing in [text, *pictures]:
        assert "@import" not in drawing and "<!ENTITY" not in drawing
        assert all(target.startswith("#") for target in re.findall(r"url\(['\"]?([^)'\"]+)", drawing))
    for drawing in pictures:
        assert all(target.startswith("#") for target in re.findall(r"(?:xlink:href|href|src)=\"([^\"]+)\"", drawing))
        assert "DOCTYPE" not in drawing


def test_page_shows_benchmark_trace_and_training(page: Path) -> None:
    texts = " ".join(References(page.read_text()).texts)
    for expected in (
        "a <run>", "openmpi", "weft ordinary", "35 ms after the others", "of that 35 ms for the last rank to call it",
        "75% is hidden", "<bias>", "net.0",
    ):  # fmt: skip
        assert expected in texts, expected


@pytest.mark.skipif(shutil.which("chromium") is None, reason="needs chromium")
def test_a_browser_shows_it_without_errors(page: Path, tmp_path: Path) -> None:
    options = ["--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path / 'profile'}"]
    command = ["chromium", *options, "--host-resolver-rules=MAP * ~NOTFOUND", "--dump-dom", page.as_uri()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    assert "which ranks waited for which" in done.stdout and "Refused to" not in done.stderr


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{}", "is not a file for a report"),
        ("no JSON", "cannot be read as JSON"),
        ('[{"library": 1}]', "another version"),
    ],
)
def test_other_files_are_named(content: str, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "other.json"
    path.write_text(content)
    assert main(["report", str(path), "-o", str(tmp_path / "x.html")]) == 2
    error = capsys.readouterr().err
    assert str(path) in error and message in error


HOSTILE = "<script>alert('1')</script>\"&amp;]]>--><img src=x onerror=alert(1)>$\\frac$\x1b[31m\x00\ud800\u202e"
HARMLESS = "n" * len(HOSTILE)
"""With the same places in a picture."""


class Structure(HTMLParser):
    """Elements and names of attributes of a page, in their order, and all values and texts."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, list[str]]] = []
        self.texts: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag, attributes):
        self.elements.append((tag, [name for name, _ in attributes]))
        self.texts += [value or "" for _, value in attributes]

    def handle_data(self, data):
        self.texts.append(data)

    def handle_comment(self, data):
        self.elements.append(("comment", [data]))


def page_of(directory: Path, name: str) -> str:
    """A page in which everything that is a text in some file, and the files' names, are `name`."""
    directory.mkdir()
    benches = [
        dataclasses.replace(
            row, collective=name, transport=name, memory=name, dtype=name, library=name + row.library, version=name
        )
        for row in ROWS
    ]
    bucket = {**BUCKET, "bucket": name, "parameters": [name, name], "algorithm": name, "priority": name}
    layer = {**LAYER, "layer": name, "algorithms": [name]}
    training = {**TRAINING, "plan": name, "mode": name, "steps": name, "memory_bytes": name}
    report = {**training, "buckets": [bucket], "layers": [layer]}
    failure = {"process_group": name, "error": name, "time_ns": 5}
    entries = [collective(0, 10, 46, name=name, group=name, dtype=name, op=name, algorithm=name)]
    groups = {name: [0, 1, 2]}
    records = [parse(record(rank, entries, groups=groups, host=name, failures=[failure]), name) for rank in range(3)]
    inputs = ReportInputs([(name, benches)], jobs(records), [(name, report)])
    path = directory / "page.html"
    path.write_text(document.page(name, inputs), encoding="utf-8")
    return path.read_text()


def test_no_name_becomes_markup(tmp_path: Path) -> None:
    pages = {name: page_of(tmp_path / str(place), name) for place, name in enumerate((HARMLESS, HOSTILE))}
    found = {name: Structure(text) for name, text in pages.items()}
    assert found[HOSTILE].elements == found[HARMLESS].elements
    shown = "".join(found[HOSTILE].texts)
    assert shown.count("<script>alert") >= "".join(found[HARMLESS].texts).count(HARMLESS)
    assert not re.search("[\0\x1b]", pages[HOSTILE])
    for data in re.findall(r"base64,([^\"]+)", pages[HOSTILE]):
        ElementTree.fromstring(base64.b64decode(data))


@pytest.mark.parametrize("kind", ("lanes", "gantt"))
def test_no_name_becomes_an_element_of_a_picture(kind: str) -> None:
    def drawn(name: str) -> ElementTree.Element:
        if kind == "lanes":
            bars = [lanes.Bar(kind, name, name, 0.0, 1.0) for kind in lanes.KINDS]
            return ElementTree.fromstring(lanes.draw(name, [lanes.Lane(name, bars)], 4000))
        events = [gantt.GanttEvent(0, kind, name, name, 0.0, 1.0, 1, 0) for kind in gantt.KINDS]
        return ElementTree.fromstring(gantt.draw(gantt.Gantt(name, 2, events), 4000))

    def elements(picture: ElementTree.Element) -> list[tuple[str, list[str]]]:
        return [(one.tag, list(one.attrib)) for one in picture.iter()]

    assert elements(drawn(HOSTILE)) == elements(drawn(HARMLESS))
    assert any("<script>alert('1')" in (one.text or "") for one in drawn(HOSTILE).iter())


def test_markup_is_made_in_one_place() -> None:
    """Nothing but `weft.drawing.markup` puts texts between tags, or escapes them."""
    package = Path(weft.__file__).parent
    allowed = {package / "drawing" / "markup.py"}
    found = {
        str(path.relative_to(package))
        for path in set(package.rglob("*.py")) - allowed
        if re.search(r"html import escape|import html\b|saxutils|f[\"']+<[a-z]+[ >]", path.read_text(encoding="utf-8"))
    }
    assert found == set()
