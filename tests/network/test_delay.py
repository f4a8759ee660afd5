"""Tests of `weft hosts --delay-ms`: latency of a line, and the data over it."""

import os
import re
import signal
import subprocess
from pathlib import Path

import pytest
from emulated_hosts import hosts_command, printed, python, run_hosts

# Rank 1 times single bytes there and back, then both ways carry random bytes, at the same time, and
# each rank reports the data sent and received.
EXCHANGE = """
import hashlib, os, random, socket, threading, time

COUNT = 3_000_000

def receive():
    while len(received) < COUNT:
        received.extend(peer.recv(1 << 20))

if os.environ["RANK"] == "0":
    with socket.create_server(("", 5000)) as server:
        peer = server.accept()[0]
    for _ in range(5):
        peer.sendall(peer.recv(1))
else:
    deadline = time.monotonic() + 50
    while True:
        try:
            peer = socket.create_connection(("host0", 5000))
            break
        except ConnectionRefusedError:
            assert time.monotonic() < deadline
    trips = []
    for _ in range(5):
        began = time.monotonic()
        peer.sendall(b"!")
        peer.recv(1)
        trips.append(time.monotonic() - began)

sent = random.Random(os.environ["RANK"]).randbytes(COUNT)
received = bytearray()
thread = threading.Thread(target=receive)
thread.start()
peer.sendall(sent)
thread.join()
print(hashlib.sha256(sent).hexdigest(), hashlib.sha256(received).hexdigest())
if os.environ["RANK"] == "1":
    print(1000 * min(trips))
"""


@pytest.mark.parametrize("line", [("--gbps", "1"), ()])
@pytest.mark.parametrize("delay_ms", [0, 20])
def test_bytes_arrive_unchanged_after_the_delay(line: tuple[str, ...], delay_ms: float) -> None:
    done = run_hosts("--hosts", "2", *line, "--delay-ms", str(delay_ms), command=python(EXCHANGE))
    assert done.returncode == 0, done.stderr
    lines = printed(done)
    first, second = (lines[rank][0].split() for rank in (0, 1))
    assert first == second[::-1]
    assert float(lines[1][1]) >= 2 * delay_ms
    counted = re.search(r"delaying (\d+) frames took .* (\d+) found the queue full", done.stderr)
    assert counted is not None, done.stderr
    assert int(counted[1]) > 100
    assert int(counted[2]) == 0


def test_end_of_delaying_process_is_reported() -> None:
    command = hosts_command("--hosts", "2", "--delay-ms", "5", command=python("import time; print(); time.sleep(1000)"))
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as launcher:
        try:
            assert launcher.stdout is not None
            assert launcher.stdout.readline() != ""
            children = Path(f"/proc/{launcher.pid}/task/{launcher.pid}/children").read_text().split()
            outside = [pid for pid in children if Path(f"/proc/{pid}/ns/pid").readlink() == OWN_PROCESSES]
            assert len(outside) == 1
            os.kill(int(outside[0]), signal.SIGKILL)
            _, stderr = launcher.communicate(timeout=30)
        finally:
            launcher.kill()
    assert launcher.returncode == 1
    assert "the process that delays the hosts' lines has ended" in stderr


OWN_PROCESSES = Path("/proc/self/ns/pid").readlink()


MEASURE = """
import time
import torch.distributed as dist
import weft.torch
from weft.torch.parallel.agreement import measured_network
from weft.torch.parallel.communication import Communication

dist.init_process_group("weft")
for late_s in (0.0, 0.01, 0.02, 0.04):
    time.sleep(late_s * dist.get_rank())
    print(measured_network(["host0", "host1"], Communication(None), has_16_bit=False).exact.latency_s)
dist.destroy_process_group()
"""


def test_planner_measures_the_delay_whichever_rank_is_late() -> None:
    done = run_hosts("--hosts", "2", "--gbps", "1", "--delay-ms", "20", command=python(MEASURE))
    assert done.returncode == 0, done.stderr
    latencies = [float(line) for lines in printed(done).values() for line in lines]
    assert len(latencies) == 8
    assert min(latencies) > 0.018, "what is sent arrives after 20 ms, less the bytes' share"
