"""Tests of the documentation: commands and examples, and currency of generated pages.

- A `console` block's lines that begin with `$ ` are run by bash in the repository; each must
succeed. Lines behind a command are its output, which is compared (shown_output.py).
- A `python` block is run as a program on two ranks.
- A `python` block behind the comment `<!-- saved as: NAME -->` is a file that a command of its page
runs. Such commands run in a directory with the files of the page only, as a reader has them.
- A block behind the comment `<!-- not run: REASON -->` is not run; the make targets that it names
must exist.
"""

import importlib
import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import first_day
import pytest
from example_ranks import run_example
from shown_output import difference, steps

from tools.pages import algorithms, commands, figures, launchers, speedup
from weft import errors

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
BLOCK = re.compile(
    r"(?P<skip><!-- not run: [^>]+-->\n+)?(?:<!-- saved as: (?P<name>[\w.]+) -->\n)?"
    r"```(?P<kind>console|python)\n(?P<text>.*?)```",
    re.DOTALL,
)
DEADLINE_S = 300


@dataclass(frozen=True)
class FencedBlock:
    """A fenced block of a page."""

    page: Path
    line: int
    kind: str
    text: str
    runs: bool
    name: str | None = None

    def __str__(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"

    @property
    def commands(self) -> list[str]:
        return [step.command for step in steps(self.text)]


def blocks() -> list[FencedBlock]:
    found = []
    for page in PAGES:
        text = page.read_text()
        for match in BLOCK.finditer(text):
            line = text.count("\n", 0, match.start("kind")) + 1
            found.append(FencedBlock(page, line, match["kind"], match["text"], match["skip"] is None, match["name"]))
    return found


def environment(**variables: str) -> dict[str, str]:
    """The virtual environment's programs first, as if it were activated.

    Without unbuffered output, in which a line and its end are two writes: those of another rank may
    come between them.
    """
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    inherited = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    return {**inherited, "PATH": path, **variables}


@pytest.mark.parametrize("block", [b for b in blocks() if b.kind == "console" and b.runs], ids=str)
def test_commands_succeed(block: FencedBlock, tmp_path: Path) -> None:
    assert block.commands, "a console block without a command"
    saved = {other.name: other.text for other in blocks() if other.page == block.page and other.name}
    for name, text in saved.items():
        (tmp_path / name).write_text(text)
    for step in steps(block.text):
        done = subprocess.run(
            ["bash", "-c", step.command],
            cwd=tmp_path if saved else ROOT,
            env=environment(),
            capture_output=True,
            text=True,
            timeout=DEADLINE_S,
            check=False,
        )
        assert done.returncode == 0, f"{step.command}\n{done.stdout}\n{done.stderr}"
        if any(line.strip() for line in step.shown):
            wrong = difference(step.shown, done.stdout)
            assert wrong is None, f"{step.command}\n{wrong}\n{done.stdout}"


@pytest.mark.parametrize("block", [b for b in blocks() if b.kind == "python" and b.runs and not b.name], ids=str)
def test_examples_run_on_two_ranks(block: FencedBlock, tmp_path: Path) -> None:
    program = tmp_path / "example.py"
    program.write_text(block.text)
    for status, output in run_example(program, 2, DEADLINE_S):
        assert status == 0, output


@pytest.mark.parametrize("block", [b for b in blocks() if b.name], ids=str)
def test_saved_files_are_run_by_a_command(block: FencedBlock) -> None:
    commands = [command for other in blocks() if other.page == block.page and other.runs for command in other.commands]
    assert any(f" {block.name}" in command for command in commands), block.name


@pytest.mark.parametrize("block", [b for b in blocks() if not b.runs], ids=str)
def test_make_targets_exist(block: FencedBlock) -> None:
    targets = re.findall(r"^\$? ?make ([a-z-]+)", block.text, re.MULTILINE)
    makefile = (ROOT / "Makefile").read_text()
    for target in targets:
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), f"no target {target}"


def test_links_lead_somewhere() -> None:
    for page in PAGES:
        for target in re.findall(r"\]\((?!https?:|#)([^)#]+)(?:#[^)]*)?\)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name}: {target}"


def test_promises_are_shown_by_tests_that_exist() -> None:
    page = (ROOT / "docs/explanation/promises.md").read_text()
    shown = re.findall(r"`([\w/.-]+\.(?:rs|py))`: ((?:`\w+`(?:, )?)+)", page)
    assert len(shown) > 20
    for file, tests in shown:
        text = (ROOT / file).read_text()
        for test in re.findall(r"`(\w+)`", tests):
            assert re.search(rf"\b(?:fn|def) {test}\(", text), f"{file} has no {test}"


def test_page_of_commands_is_current() -> None:
    assert (ROOT / "docs/reference/commands.md").read_text() == commands.page(), "run `make docs`"


def test_first_day_finds_the_first_page_s_commands() -> None:
    commands, files = first_day.first_job((ROOT / "docs/index.md").read_text())
    assert [command.split()[0] for command in commands] == ["python3", ".", "pip", "pip", "torchrun"]
    assert list(files) == ["train.py"]


def test_first_day_records_the_time_of_each_command() -> None:
    record = first_day.recorded("0.1 s: . env/bin/activate\nrank 0 of 2: loss 1.0\n4.5 s: torchrun train.py\n")
    assert record["steps"] == [
        {"command": ". env/bin/activate", "seconds": 0.1},
        {"command": "torchrun train.py", "seconds": 4.5},
    ]
    assert "rank 0 of 2: loss 1.0" in record["output"]


@pytest.mark.parametrize("framework", ["Lightning", "Accelerate", "Transformers", "Ray", "torchft", "DeepSpeed", "JAX"])
def test_page_of_frameworks_says_how_to_start_each(framework: str) -> None:
    page = (ROOT / "docs/how-to/frameworks.md").read_text()
    section = re.search(rf"^##+ {framework}\n(.*?)^##", page, re.MULTILINE | re.DOTALL)
    assert section and re.search(r"^```console\n\$ .*(?:torchrun|python) ", section[1], re.MULTILINE | re.DOTALL)


def test_table_of_launchers_is_current() -> None:
    page = (ROOT / "docs/launchers/README.md").read_text()
    assert page == launchers.page(page), "run `make docs`"
    files = {path.stem for path in (ROOT / "tests/launchers").glob("test_*.py")}
    assert files == {"test_pages", *launchers.LAUNCHERS}


def test_chart_of_training_is_current() -> None:
    assert (ROOT / "docs/assets/training.svg").read_text() == speedup.drawing(speedup.recorded()), "run `make docs`"


def test_figures_are_current() -> None:
    assert (ROOT / "docs/reference/figures.md").read_text() == figures.page(), "run `make docs`"
    for path, root in figures.SUMMARIES.items():
        page = (ROOT / path).read_text()
        assert page.count("<!-- table: make docs -->\n\n| setting |") == 1, path
        assert page == figures.with_summary(page, root), f"{path}: run `make docs`"


def test_every_table_of_figures_has_its_record() -> None:
    page = (ROOT / "docs/reference/figures.md").read_text()
    tables = re.findall(r"(?:^\|[^\n]*\n)+(.*?)(?=^\||^## |\Z)", page, re.MULTILINE | re.DOTALL)
    assert len(tables) >= 7
    for behind in tables:
        assert re.search(r"^Record: \[[\w-]+\]\(\.\./\.\./benches/runs/", behind, re.MULTILINE), behind
    for path in figures.SUMMARIES:
        rows = re.search(r"<!-- table: make docs -->\n\n.*\n.*\n((?:\|.*\n)+)", (ROOT / path).read_text())
        assert rows
        for row in rows[1].splitlines():
            assert not re.search(r"\d\.\d\d", row) or "benches/runs/" in row, row


def test_page_and_drawings_of_algorithms_are_current() -> None:
    generated = dict(algorithms.files())
    for path, text in generated.items():
        assert (ROOT / "docs/explanation" / path).read_text() == text, f"{path}: run `make docs`"
    drawings = {f"algorithms/{path.name}" for path in (ROOT / "docs/explanation/algorithms").iterdir()}
    assert drawings == set(generated) - {"algorithms.md"}


def test_every_error_has_its_section() -> None:
    page = (ROOT / "docs/reference/errors.md").read_text()
    sections = dict(re.findall(r"^## (\w+)$\n(.*?)(?=^## |\Z)", page, re.MULTILINE | re.DOTALL))
    assert list(sections) and set(sections) == set(errors.__all__)
    for name, section in sections.items():
        assert "**What it means.**" in section and "**What to do.**" in section, name
        assert name == "Error" or f"[`{name}`](#{name.lower()})" in page, name
    raised = {value.__name__ for value in vars(errors).values() if isinstance(value, type)}
    assert raised == set(errors.__all__)


@pytest.mark.parametrize("module", ["weft", "weft.torch", "weft.torch.modes"])
def test_every_public_name_is_in_the_reference(module: str) -> None:
    pages = "".join(page.read_text() for page in (ROOT / "docs/reference").rglob("*.md"))
    private_use = {"weft": {"__version__"}, "weft.torch": {"BACKEND_NAME", "autoload"}}
    names = set(importlib.import_module(module).__all__) - private_use.get(module, set())
    missing = {name for name in names if not re.search(rf"(::: {module}\.|## |  - ){name}$", pages, re.MULTILINE)}
    assert not missing
