"""Tests of files that weft writes in places where others may have prepared something."""

import ast
import os
import re
import shutil
import stat
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from weft.output import files

PACKAGE = Path(files.__file__).parent
KINDS = ["link", "dangling", "directory-link", "directory", "pipe"]


def plant(kind: str, path: Path, target: Path) -> None:
    """Makes an attacker's file at a path: a link to the target, or another special file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    match kind:
        case "link":
            path.symlink_to(target / "precious")
        case "dangling":
            path.symlink_to(target / "new")
        case "directory-link":
            path.symlink_to(target)
        case "directory":
            path.mkdir()
        case "pipe":
            os.mkfifo(path)


@pytest.fixture
def target(tmp_path):
    """A directory of the victim's, which must stay as it is."""
    directory = tmp_path / "target"
    directory.mkdir()
    (directory / "precious").write_text("the victim's")
    yield directory
    assert [path.name for path in directory.iterdir()] == ["precious"]
    assert (directory / "precious").read_text() == "the victim's"


@pytest.mark.parametrize("kind", KINDS)
def test_file_replaces_existing_one(kind, tmp_path, target):
    path = tmp_path / "shared" / "file"
    plant(kind, path, target)
    if kind == "directory":
        with pytest.raises(IsADirectoryError):
            files.write(path, "mine")
    else:
        files.write(path, "mine")
        assert path.read_text() == "mine"
        assert not path.is_symlink()
    assert [found.name for found in path.parent.iterdir()] == ["file"], "no draft is left"


@pytest.mark.parametrize("kind", KINDS)
def test_special_files_are_neither_followed_nor_awaited(kind, tmp_path, target):
    path = tmp_path / "file"
    plant(kind, path, target)
    with pytest.raises(OSError):
        files.open_file(path, os.O_RDWR | os.O_CREAT)
    with pytest.raises(OSError):
        files.open_file(path, os.O_RDONLY)
    if kind == "link":
        assert files.read_text(path) == "the victim's"
    else:
        with pytest.raises(OSError):
            files.read_text(path)


def test_incomplete_write_changes_nothing(tmp_path):
    path = tmp_path / "file"
    files.write(path, "old")

    def fail():
        with files.replacing(path) as file:
            file.write(b"half")
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_modes_are_those_of_the_caller(tmp_path):
    program = """
import os, sys
from pathlib import Path
from weft.output import files
os.umask(0o027)
files.write(Path(sys.argv[1], "common"), "")
with files.replacing(Path(sys.argv[1], "own"), mode=files.PRIVATE, sync=True): pass
"""
    subprocess.run([sys.executable, "-c", program, str(tmp_path)], check=True, timeout=60)
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir()}
    assert modes == {"common": 0o640, "own": 0o600}


def test_devices_are_written_to(capfd):
    files.write("/dev/null", "nothing")
    assert Path("/dev/null").is_char_device()
    files.write("/dev/stdout", "seen\n")
    assert capfd.readouterr().out == "seen\n"
    reader, writer = os.pipe()
    files.write(f"/dev/fd/{writer}", b"through a pipe")
    assert os.read(reader, 100) == b"through a pipe"
    os.close(reader)
    os.close(writer)


def test_private_directories_are_own_and_closed(tmp_path):
    own = tmp_path / "own"
    own.mkdir(0o700)
    assert files.is_private(own)
    link = tmp_path / "link"
    link.symlink_to(own)
    assert not files.is_private(link)
    own.chmod(0o770)
    assert not files.is_private(own)
    assert not files.is_private(tmp_path / "missing")
    if os.geteuid() == 0:
        own.chmod(0o700)
        os.chown(own, 1, 1)
        assert not files.is_private(own)


WRITERS = {"write_text", "write_bytes", "savefig", "mkstemp", "NamedTemporaryFile", "touch"}


def writes(call: ast.Call) -> bool:
    """Whether a call writes a file by its name."""
    name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
    if name == "savefig":
        return ast.unparse(call.args[0]) != "file"
    modes = [*call.args[:2], *(keyword.value for keyword in call.keywords if keyword.arg == "mode")]
    how = [one.value for one in modes if isinstance(one, ast.Constant) and isinstance(one.value, str)]
    return name in WRITERS or (name == "open" and any(re.fullmatch("[rwaxbt+]*[wax+][rwaxbt+]*", mode) for mode in how))


def test_nothing_else_in_the_package_writes_files():
    found = [
        f"{path.relative_to(PACKAGE)}:{node.lineno}"
        for path in PACKAGE.rglob("*.py")
        if path.name != "files.py"
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call) and writes(node)
    ]
    assert found == [], "write by weft.output.files, which follows no link"


RANK = """
import numpy, os, sys, weft
from weft.profiles import stored
group = weft.init(0, 1)
assert group.all_reduce(numpy.ones(4))[0] == 1
try:
    group.abort("enough")
    group.all_reduce(numpy.ones(4))
except weft.Aborted as error:
    print(error)
"""


def run_rank(shared: Path) -> subprocess.CompletedProcess:
    """A rank that writes all files that a rank can, all of them in the shared directory."""
    defaults = {name: value for name, value in os.environ.items() if not name.startswith("WEFT_")}
    places = {"TMPDIR": str(shared), "XDG_CONFIG_HOME": str(shared), "WEFT_METRICS": f"{shared}/weft.prom"}
    return subprocess.run(
        [sys.executable, "-c", RANK], env={**defaults, **places}, capture_output=True, text=True, timeout=60
    )


def shared_place(path: Path) -> Path:
    path.mkdir()
    path.chmod(0o1777)
    return path


def test_a_rank_writes_for_its_user_alone(tmp_path):
    shared = shared_place(tmp_path / "shared")
    done = run_rank(shared)
    assert done.returncode == 0, done.stderr
    (own,) = shared.glob("weft-flight-*")
    (record,) = own.glob("job-*/rank0.json")
    assert str(record.parent) in done.stdout
    assert [stat.S_IMODE(path.stat().st_mode) for path in (own, record.parent, record)] == [0o700, 0o700, 0o600]
    again = run_rank(shared)
    assert {path.name for path in shared.iterdir()} == {own.name, "weft-rank0.prom"}, again.stderr
    assert len(list(own.iterdir())) == 2


@pytest.mark.parametrize("kind", KINDS)
def test_planted_files_harm_no_rank(kind, tmp_path, target):
    shared = shared_place(tmp_path / "shared")
    names = ["weft-rank0.prom", ".weft-rank0.prom.new", "weft", "weft-flight-0", "weft-flight-0000000000000000"]
    for name in names:
        plant(kind, shared / name, target)
    if kind == "directory":
        for name in ("weft-flight-0", "weft-flight-0000000000000000"):
            (shared / name).chmod(0o777)
    done = run_rank(shared)
    assert done.returncode == 0, done.stderr
    assert "enough" in done.stdout
    assert ("cannot write" in done.stderr) == (kind == "directory"), done.stderr
    (own,) = (path for path in shared.glob("weft-flight-*") if path.name not in names)
    assert len(list(own.glob("job-*/rank0.json"))) == 1
    assert not any(list((shared / name).iterdir()) for name in names if kind == "directory")


@pytest.mark.skipif(os.geteuid() != 0, reason="gives a directory to another user")
def test_a_directory_of_another_user_is_not_used(tmp_path):
    shared = shared_place(tmp_path / "shared")
    theirs = shared / "weft-flight-0000000000000000"
    theirs.mkdir(0o700)
    os.chown(theirs, 1, 1)
    assert run_rank(shared).returncode == 0
    assert not list(theirs.iterdir())
    assert len(list(shared.glob("weft-flight-*/job-*/rank0.json"))) == 1


def test_profile_that_is_a_pipe_is_not_awaited(tmp_path):
    from weft.errors import ConfigError
    from weft.profiles import Profile

    path = tmp_path / "2-ranks-0.json"
    os.mkfifo(path)
    ended = threading.Event()

    def load():
        with pytest.raises(ConfigError, match="it is not a regular file"):
            Profile.load(path)
        ended.set()

    threading.Thread(target=load, daemon=True).start()
    assert ended.wait(30)


def test_directories_that_disappear_are_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("ended", "running"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "rank0").touch()
    scan = os.scandir

    def scan_late(directory: str) -> object:
        if str(directory).endswith("ended"):
            shutil.rmtree(tmp_path / "ended", ignore_errors=True)
        return scan(directory)

    monkeypatch.setattr(os, "scandir", scan_late)
    assert files.found_in(tmp_path, "*/rank*") == [tmp_path / "running" / "rank0"]
    assert files.found_in(tmp_path / "ended", "rank*") == []
