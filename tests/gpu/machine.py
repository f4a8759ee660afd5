"""The machine, its programs and weft's package, as lines for the summary."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import shutil
import subprocess
import sys
import time

_QUERY = "driver_version,memory.total,compute_mode,mig.mode.current,pcie.link.gen.current,pcie.link.width.current"
_PACKAGES = ("torch", "numpy", "nvidia-nccl-cu13", "cupy-cuda13x", "jax", "rich", "triton")
_PROGRAMS = ("compute-sanitizer", "ncu", "nvcc")


def main() -> None:
    for command in (["nvidia-smi", "-L"], ["nvidia-smi", f"--query-gpu={_QUERY}", "--format=csv,noheader"]):
        if shutil.which(command[0]) is not None:
            for line in subprocess.run(command, capture_output=True, text=True, check=False).stdout.splitlines():
                print("NOTE", line)
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") >> 20
    shared = shutil.disk_usage("/dev/shm").total >> 20
    cores = len(os.sched_getaffinity(0))
    system = f"{platform.release()}, {' '.join(platform.libc_ver())}"
    print(f"NOTE {system}, {cores} cores, {memory} MiB, /dev/shm {shared} MiB")
    print("NOTE Python", platform.python_version(), *(f"{name} {_version(name)}" for name in _PACKAGES))
    print("NOTE programs:", *(name for name in _PROGRAMS if shutil.which(name)))
    began = time.monotonic()
    import torch.distributed as dist

    import weft
    from weft.device.driver import driver

    found = driver()
    took = time.monotonic() - began
    print(
        f"NOTE weft {weft.__version__} with torch after {took:.1f} s; registered: {'weft' in dist.Backend.backend_list}"
    )
    print(f"NOTE driver {found.path} {found.version}, devices: {found.devices}", flush=True)
    subprocess.run(
        [sys.executable, "-m", "weft.cli", "doctor"], check=False
    )  # its text is of interest, not its verdict


def _version(name: str) -> str:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return "none"


if __name__ == "__main__":
    main()
