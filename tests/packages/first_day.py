"""A user's first day in a system with nothing but Python: `first_day.py ROOT` (`make first-day`).

It changes into the system at ROOT and runs what the site's first page prints, with pip and the
package index. torch alone is installed from uv's cache, and not timed: its size has nothing to do
with weft, and PyTorch's own index need not be reachable.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

from distributions import ROOT, UV, run, wheel

LIMIT_S = 120
RECORD = ROOT / "build" / "first-day" / "record.json"
DEADLINE_S = 900
PAGE = ROOT / "docs" / "index.md"
OF_THIS_MACHINE = ("/etc/resolv.conf", "/etc/hosts", "/etc/pip.conf", "/etc/ssl/certs/ca-certificates.crt")
"""How this machine reaches the package index."""

_BLOCK = re.compile(
    r"(?:<!-- (?:not run: (?P<skip>[^>]+)|saved as: (?P<file>[\w.]+)) -->\n)?```(?P<kind>\w+)\n(?P<text>.*?)```",
    re.DOTALL,
)
_PASSED_ON = re.compile(r"PIP_|SSL_CERT_|UV_|\w+_proxy$", re.IGNORECASE)
_REPORT = """python3 -c 'import sys; print(f"{(int(sys.argv[2]) - int(sys.argv[1])) / 1e9:.1f} s: {sys.argv[3]}")'"""
_DOCTOR = "weft doctor || true"
_TORCH = "/uv/uv pip install --quiet --link-mode symlink --python env/bin/python -c /uv/requirements.lock torch"


def main(root: Path) -> int:
    commands, files = first_job(PAGE.read_text(encoding="utf-8"))
    _furnish(root, files)
    inherited = {name: value for name, value in os.environ.items() if _PASSED_ON.match(name)}
    record = RECORD.open("w", encoding="utf-8")  # it is outside of the system
    os.chroot(root)
    os.chdir("/job")
    done = subprocess.run(
        ["/bin/bash", "-e", "-c", timed([*commands, _DOCTOR])],
        env={"PATH": "/usr/bin:/bin", "HOME": "/job", **inherited, "UV_CACHE_DIR": "/uv/cache"},
        stdout=subprocess.PIPE,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )
    print(done.stdout, end="")
    with record:
        record.write(json.dumps(recorded(done.stdout), indent=1) + "\n")
    print(f"record, to send: {RECORD.relative_to(ROOT)}")
    if done.returncode != 0:
        return done.returncode
    ranks = set(re.findall(r"rank (\d) of 2: loss \d\.\d{4}", done.stdout))
    total = sum(took for _, took in _times(done.stdout))
    print(f"first day: {total:.1f} s of at most {LIMIT_S}, without the download of torch; ranks {sorted(ranks)}")
    return 0 if ranks == {"0", "1"} and total <= LIMIT_S else 1


def first_job(page: str) -> tuple[list[str], dict[str, str]]:
    """The commands and the files of the page's first job, in order.

    Commands that other tests must not run count if their comment names `make first-day`.
    """
    section = page.split("## Your first job\n")[1].split("\n## ")[0]
    commands, files = [], {}
    for block in _BLOCK.finditer(section):
        if block["file"]:
            files[block["file"]] = block["text"]
        elif block["kind"] == "console" and (block["skip"] is None or "make first-day" in block["skip"]):
            commands += [line[2:] for line in block["text"].splitlines() if line.startswith("$ ")]
    assert any(command.startswith("pip install") for command in commands), commands
    assert any(name in command for command in commands for name in files), commands
    return commands, files


def recorded(output: str) -> dict[str, object]:
    """Returns the record that a user can send: the time of each command, and the output."""
    steps = [{"command": command, "seconds": took} for command, took in _times(output)]
    return {"kind": "weft first day", "limit_s": LIMIT_S, "steps": steps, "output": output.splitlines()}


def timed(commands: list[str]) -> str:
    """Returns a script that runs them and prints their durations; torch is installed untimed."""
    lines = []
    for command in commands:
        if command.startswith("pip install torch "):
            lines.append(_TORCH)
            continue
        lines += ["began=$(date +%s%N)", command, f"{_REPORT} $began $(date +%s%N) {shlex.quote(command)}"]
    return "\n".join(lines)


def _times(output: str) -> list[tuple[str, float]]:
    return [(command, float(took)) for took, command in re.findall(r"^([\d.]+) s: (.*)$", output, re.MULTILINE)]


def _furnish(root: Path, files: dict[str, str]) -> None:
    """Mounts a container's file systems, and copies the user's files: the wheel and the script."""
    job = root / "job"
    shutil.rmtree(job, ignore_errors=True)
    job.mkdir()
    shutil.copy(wheel(), job)
    for name, text in files.items():
        (job / name).write_text(text, encoding="utf-8")
    for file in filter(os.path.exists, OF_THIS_MACHINE):
        shutil.copy(file, f"{root}{file}")
    tools = root / "uv"
    (tools / "cache").mkdir(parents=True, exist_ok=True)
    shutil.copy(UV, tools)
    shutil.copy(ROOT / "requirements.lock", tools)
    for source, target, *options in (
        ("proc", "proc", "-t", "proc"),
        ("/dev", "dev", "--rbind"),
        (run(UV, "cache", "dir").strip(), "uv/cache", "--bind"),
    ):
        subprocess.run(["mount", *options, source, str(root / target)], check=True)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]).resolve()))
