"""The wheels of weft on a machine with a GPU, which has no compiler, and ranks that use them."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

ROOT = Path(__file__).parents[2]
_PACKAGE = ROOT / "build" / "gpu" / "package"
LOOPBACK = {"GLOO_SOCKET_IFNAME": "lo", "NCCL_SOCKET_IFNAME": "lo", "NCCL_IB_DISABLE": "1"}
"""Settings for a machine that is lent, which may have no network."""


def output_folder(asked: Path | None, kind: str) -> Path:
    """The folder for results: as asked, or $OUT, or in build/gpu."""
    return asked or Path(os.environ.get("OUT") or ROOT / "build" / "gpu" / kind)


def environment(**settings: object) -> dict[str, str]:
    """Variables for processes that import weft and weft_lab from the newest wheels in build/."""
    shutil.rmtree(_PACKAGE, ignore_errors=True)
    for name in ("weft_collectives-*x86_64.whl", "weft_lab-*.whl"):
        wheels = [*ROOT.glob(f"build/wheels/{name}"), *ROOT.glob(f"build/dist/{name}")]
        if not wheels:
            raise SystemExit(f"no {name} in build/wheels or build/dist: run `make wheel` where there is a compiler")
        with zipfile.ZipFile(max(wheels, key=lambda path: path.stat().st_mtime)) as files:
            files.extractall(_PACKAGE)
    paths = [str(_PACKAGE), str(ROOT), os.environ.get("PYTHONPATH", "")]
    variables = {"PYTHONPATH": os.pathsep.join(path for path in paths if path)}
    return {**os.environ, **variables, **{name: str(value) for name, value in settings.items()}}


@contextlib.contextmanager
def started(
    command: Sequence[str], variables: Mapping[str, str], outputs: Sequence[int], errors: int | None = None
) -> Iterator[list[subprocess.Popen[bytes]]]:
    """Processes that meet as ranks of this machine, one for each of `outputs`. None is left behind.

    `outputs` and `errors` are where they write, as `subprocess` takes it.
    """
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port = one.getsockname()[1]
    place = {"WORLD_SIZE": str(len(outputs)), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    processes = [
        subprocess.Popen(command, cwd=ROOT, env={**variables, **place, "RANK": str(rank)}, stdout=output, stderr=errors)
        for rank, output in enumerate(outputs)
    ]
    try:
        yield processes
    finally:
        for process in processes:
            process.kill()
            process.wait()
