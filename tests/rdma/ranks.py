"""Groups of processes over RDMA, in the machine of `vm.sh`.

NumPy, a rank that dies, the doctor, emulated GPUs, torch. `ranks.py devices`: the GPUs only, whose
memory the adapters take then.
"""

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from tools.emulated_cuda import library
from weft.diagnosis import findings as diagnosis

MEMBER = Path(__file__).with_name("member.py")


def free_port() -> int:
    """Returns a port without a listener."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def check(task: str, size: int, deadline_s: float, meetings: int = 1, killed: int | None = None) -> None:
    """Runs a task on this many ranks; all must end well, except for the one that kills itself."""
    print(f"--- {task}, {size} ranks", flush=True)
    addresses = [f"127.0.0.1:{free_port()}" for _ in range(meetings)]
    command = [sys.executable, str(MEMBER), task]
    ranks = [subprocess.Popen([*command, str(rank), str(size), *addresses]) for rank in range(size)]
    try:
        statuses = [rank.wait(deadline_s) for rank in ranks]
    finally:
        for rank in ranks:
            rank.kill()
            rank.wait()
    expected = [-signal.SIGKILL if rank == killed else 0 for rank in range(size)]
    if statuses != expected:
        raise SystemExit(f"{task}: the ranks ended with {statuses} instead of {expected}")


def check_doctor() -> None:
    """Checks the doctor's findings about RDMA: the transport works, and each device has a port."""
    print("--- weft doctor", flush=True)
    found = {finding.subject: finding for finding in diagnosis.rdma()}
    for subject in ("transport rdma", "RDMA port rxe0:1", "RDMA port rxe1:1"):
        print(found.get(subject), flush=True)
        if subject not in found or not found[subject].good:
            raise SystemExit(f"weft doctor does not find {subject!r} to be good: {found}")


def check_devices(taken: bool) -> None:
    """Memory of emulated GPUs: sent in place if adapters take it, and staged if not."""
    check(f"devices_{'taken' if taken else 'refused'}", 2, 300, meetings=2)
    os.environ["WEFT_CUDA_DRIVER"] = str(library())
    text = diagnosis.graphics_processors().text
    print(text, flush=True)
    for adapter in ("rxe0", "rxe1"):
        if f"{adapter} {'takes it' if taken else 'refuses it: Operation not supported'}" not in text:
            raise SystemExit(f"weft doctor does not say whether {adapter} takes memory of GPUs")


if __name__ == "__main__":
    if sys.argv[1:] == ["devices"]:
        check_devices(taken=True)
        check("torch_devices", 2, 300)
        sys.exit()
    check("sums", 3, 300, meetings=3)
    check("registered", 2, 300, meetings=2)
    check("lost", 3, 300, killed=2)
    check_doctor()
    check_devices(taken=False)
    check("torch", 2, 600)
