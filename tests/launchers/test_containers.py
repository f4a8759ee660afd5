"""Tests of docs/launchers/containers.md: the memory of a container, and the Dockerfile."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

from cluster import DEADLINE_S, EXAMPLES, check_trained, environment


def test_64_kib_of_dev_shm_are_enough(tmp_path: Path) -> None:
    """Two ranks with 64 MiB of gradients, where /dev/shm is a thousandth of that."""
    script = tmp_path / "large.py"
    script.write_text(
        "import os, torch, torch.distributed as dist\n"
        "dist.init_process_group('weft')\n"
        "filesystem = os.statvfs('/dev/shm')\n"
        "gradient = torch.ones(16 << 20)\n"
        "dist.all_reduce(gradient)\n"
        "assert (gradient == 2).all()\n"
        "mapped = 'memfd:weft' in open('/proc/self/maps').read()\n"
        "print(f'bytes {filesystem.f_blocks * filesystem.f_frsize} shared memory {mapped}\\n', end='', flush=True)\n"
        "model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(1024, 1024))\n"
        "for _ in range(3):\n"
        "    model(torch.ones(1, 1024)).sum().backward()\n"
        "dist.destroy_process_group()\n"
    )
    output = _in_container("torchrun", "--standalone", "--nproc-per-node", "2", str(script))
    assert output.count("bytes 65536 shared memory True") == 2, output


def test_dockerfile_starts_training() -> None:
    """Its last line, in the directory that it copies from."""
    command = re.search(r"^CMD (.*)$", (EXAMPLES / "Dockerfile").read_text(), re.MULTILINE)
    assert command
    check_trained(_in_container(*json.loads(command[1])), ranks=2, hosts=1)


def test_dockerfile_copies_existing_files() -> None:
    text = (EXAMPLES / "Dockerfile").read_text()
    for line in re.findall(r"^COPY (.*) \S+$", text, re.MULTILINE):
        for name in line.split():
            assert "*" in name or (EXAMPLES / name).exists(), name


def _in_container(*command: str) -> str:
    """Returns the output of a command in own PID, IPC and mount namespaces, with 64 KiB of
    /dev/shm.
    """
    small = 'mount -t tmpfs -o size=64k tmpfs /dev/shm && exec "$@"'
    isolated = ["unshare", "--mount", "--ipc", "--pid", "--fork", "--kill-child", "--mount-proc"]
    done = subprocess.run(
        [*isolated, "bash", "-c", small, "bash", *command],
        cwd=EXAMPLES,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    return done.stdout
