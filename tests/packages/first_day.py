"""A user's first day in a system with nothing but Python: `first_day.py ROOT` (`make first-day`).

It changes into the system at ROOT, makes a virtual environment, installs the wheel with pip, and
trains on two ranks. torch is not downloaded but mounted, since its gigabytes say nothing of weft.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import time
from pathlib import Path

from distributions import ROOT, wheel

LIMIT_S = 120
OF_THIS_MACHINE = ("/etc/resolv.conf", "/etc/hosts", "/etc/pip.conf", "/etc/ssl/certs/ca-certificates.crt")
"""How this machine reaches the package index."""


def main(root: Path) -> int:
    installed = wheel().name
    _furnish(root)
    inherited = {
        name: value for name, value in os.environ.items() if name.startswith("PIP_") or name.endswith("_proxy")
    }
    environment = {"PATH": "/job/env/bin:/usr/bin:/bin", "HOME": "/job", "OMP_NUM_THREADS": "1", **inherited}
    os.chroot(root)
    os.chdir("/job")
    python = "/job/env/bin/python"
    took = {}
    for name, command in {
        "virtual environment": ["/usr/bin/python3", "-m", "venv", "/job/env"],
        "pip install": [python, "-m", "pip", "install", "--quiet", f"/job/{installed}"],
        "torch, mounted": [
            python,
            "-c",
            "import site; open(site.getsitepackages()[0] + '/t.pth', 'w').write('/torch')",
        ],
        "first training job": [
            *(python, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"),
            "train.py",
        ],
    }.items():
        began = time.monotonic()
        subprocess.run(command, env=environment, check=True, timeout=600)
        took[name] = time.monotonic() - began
        print(f"{name}: {took[name]:.1f} s", flush=True)
    total = sum(took.values())
    print(f"first day: {total:.1f} s of at most {LIMIT_S}")
    return 0 if total <= LIMIT_S else 1


def _furnish(root: Path) -> None:
    """Mounts what a container has, and copies what the user brings: the wheel and the script."""
    job = root / "job"
    shutil.rmtree(job, ignore_errors=True)
    job.mkdir()
    shutil.copy(wheel(), job)
    shutil.copy(ROOT / "examples" / "launchers" / "train.py", job)
    for file in filter(os.path.exists, OF_THIS_MACHINE):
        shutil.copy(file, f"{root}{file}")
    (root / "torch").mkdir(exist_ok=True)
    for source, target, *options in (
        ("proc", "proc", "-t", "proc"),
        ("/dev", "dev", "--rbind"),
        (sysconfig.get_path("purelib"), "torch", "--bind"),
    ):
        subprocess.run(["mount", *options, source, str(root / target)], check=True)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]).resolve()))
