"""Tests of `weft hosts`: environment of a command on an emulated host, and complete cleanup."""

import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable
from pathlib import Path

import pytest
from emulated_hosts import hosts_command, printed, processes_with, python, run_hosts

RENDEZVOUS = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")


def test_rendezvous_variables_are_set() -> None:
    script = f"import os; print(*[os.environ[name] for name in {RENDEZVOUS}])"
    done = run_hosts("--hosts", "2", "--ranks-per-host", "2", command=python(script))
    assert done.returncode == 0, done.stderr
    assert printed(done) == {rank: [f"{rank} 4 {rank % 2} 2 10.77.0.1 29500"] for rank in range(4)}


def test_ranks_compute_with_one_thread_unless_the_caller_says_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    script = python("import os; print(os.environ['OMP_NUM_THREADS'])")
    for given, expected in ((None, "1"), ("2", "2")):
        if given is None:
            monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
        else:
            monkeypatch.setenv("OMP_NUM_THREADS", given)
        assert printed(run_hosts("--hosts", "2", command=script)) == {rank: [expected] for rank in range(2)}


NAMESPACES = ("net", "mnt", "pid", "ipc", "uts")


def test_host_has_its_own_namespaces() -> None:
    script = (
        "import os, socket; print(socket.gethostname(), "
        f"*[os.readlink('/proc/self/ns/' + kind) for kind in {NAMESPACES}])"
    )
    done = run_hosts("--hosts", "2", command=python(script))
    assert done.returncode == 0, done.stderr
    first, second = (printed(done)[rank][0].split() for rank in (0, 1))
    ours = [str(Path(f"/proc/self/ns/{kind}").readlink()) for kind in NAMESPACES]
    assert (first[0], second[0]) == ("host0", "host1")
    for name, one, other in zip(ours, first[1:], second[1:], strict=True):
        assert len({name, one, other}) == 3, (name, one, other)


def test_host_sees_no_temporary_files_of_machine(tmp_path: Path) -> None:
    script = f"import os; print(os.path.exists('{tmp_path}'), os.listdir('/dev/shm'))"
    done = run_hosts("--hosts", "1", command=python(script))
    assert printed(done) == {0: ["False []"]}


def test_only_ranks_of_one_host_share_memory(tmp_path: Path) -> None:
    script = f"""
import os, time, pathlib
rank = os.environ["RANK"]
pathlib.Path("/dev/shm", rank).touch()
pathlib.Path("{tmp_path}", rank).touch()
while len(os.listdir("{tmp_path}")) < 4:
    time.sleep(0.01)
print(*sorted(os.listdir("/dev/shm")))
"""
    done = run_hosts("--hosts", "2", "--ranks-per-host", "2", "--share", str(tmp_path), command=python(script))
    assert done.returncode == 0, done.stderr
    assert printed(done) == {0: ["0 1"], 1: ["0 1"], 2: ["2 3"], 3: ["2 3"]}


SEND = """
import os, socket, threading, time
def drain(peer):
    while peer.recv(1 << 20):
        pass
if os.environ["RANK"] == "0":
    with socket.create_server(("", 5000)) as server:
        peers = [server.accept()[0] for _ in range(int(os.environ["WORLD_SIZE"]) - 1)]
    began = time.monotonic()
    threads = [threading.Thread(target=drain, args=(peer,)) for peer in peers]
    for thread in threads: thread.start()
    for peer in peers: peer.sendall(b"!")
    for thread in threads: thread.join()
    print(len(peers) * {count} * 8 / (time.monotonic() - began) / 1e6)
else:
    deadline = time.monotonic() + 50
    while True:
        try:
            peer = socket.create_connection(("host0", 5000))
            break
        except ConnectionRefusedError:
            assert time.monotonic() < deadline
    peer.recv(1)
    peer.sendall(bytes({count}))
    peer.close()
"""


@pytest.mark.parametrize(("hosts", "gbps"), [(2, 0.1), (2, 1.0), (3, 1.0)])
def test_line_has_its_rate(hosts: int, gbps: float) -> None:
    senders = hosts - 1
    script = SEND.format(count=int(gbps * 1e9 / 8 * 0.5 / senders))
    done = run_hosts("--hosts", str(hosts), "--gbps", str(gbps), command=python(script))
    assert done.returncode == 0, done.stderr
    mbps = float(printed(done)[0][0])
    # Headers take 5 %; a machine that is busy with other things may be slower, never faster than
    # the line.
    assert 0.5 * gbps * 1000 < mbps < 1.0 * gbps * 1000


def test_exit_code_is_the_failing_ranks() -> None:
    script = "import os, sys; sys.exit(7 if os.environ['RANK'] == '1' else 0)"
    done = run_hosts("--hosts", "2", command=python(script))
    assert done.returncode == 7
    assert "rank 1 on host1 exited with 7" in done.stderr


def test_ranks_running_after_a_failure_are_ended() -> None:
    script = "import os, sys, time; time.sleep(1000) if os.environ['RANK'] == '0' else sys.exit(3)"
    began = time.monotonic()
    done = run_hosts("--hosts", "2", "--grace", "0.5", command=python(script))
    assert done.returncode == 3
    assert time.monotonic() - began < 20
    assert "ranks that still ran after the 0.5 s of --grace are killed: 0\n" in done.stderr


def test_command_that_is_missing_is_named() -> None:
    done = run_hosts("--hosts", "1", command=["no-such-program"])
    assert done.returncode == 127
    assert "cannot run no-such-program" in done.stderr


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--hosts", "0"), "argument --hosts: 0 is not allowed; expected a whole number, between 1 and 250"),
        (
            ("--hosts", "2", "--gbps", "-1"),
            "argument --gbps: -1 is not allowed; expected a number, between 0.001 and 1000",
        ),
        (
            ("--hosts", "2", "--delay-ms", "-1"),
            "argument --delay-ms: -1 is not allowed; expected a number, between 0 and 10000",
        ),
        (
            ("--hosts", "2", "--ranks-per-host", "0"),
            "argument --ranks-per-host: 0 is not allowed; expected a whole number, 1 or more",
        ),
    ],
)
def test_values_out_of_range_are_refused(options: tuple[str, ...], message: str) -> None:
    done = run_hosts(*options, command=["true"])
    assert done.returncode == 2
    assert message in done.stderr


WAIT_FOR_SIGNAL = """
import signal, sys, time
def on_signal(number, frame):
    print("took", signal.Signals(number).name, flush=True)
    sys.exit(0)
signal.signal(signal.{name}, on_signal)
print("waiting {marker}", flush=True)
time.sleep(1000)
"""


@pytest.mark.parametrize("name", ["SIGTERM", "SIGINT"])
def test_signals_are_forwarded(name: str) -> None:
    marker = uuid.uuid4().hex
    script = WAIT_FOR_SIGNAL.format(name=name, marker=marker)
    with started("--hosts", "2", command=python(script)) as launcher:
        wait_for_lines(launcher, 2)
        launcher.send_signal(signal.Signals[name])
        out, _ = launcher.communicate(timeout=30)
        assert out.count(f"took {name}") == 2
        assert launcher.returncode == 128 + signal.Signals[name]
    assert processes_with(marker) == []


@pytest.mark.parametrize("delay", [(), ("--delay-ms", "5")])
def test_killed_launcher_leaves_nothing(delay: tuple[str, ...]) -> None:
    marker = uuid.uuid4().hex
    # Every rank also has a child of its own, in a session of its own.
    script = f"""
import os, time
if os.fork() == 0:
    os.setsid()
print("{marker}", flush=True)
time.sleep(1000)
"""
    before = interfaces()
    with started("--hosts", "3", "--ranks-per-host", "2", *delay, command=python(script)) as launcher:
        wait_for_lines(launcher, 12)
        assert len(processes_with(marker)) > 12
        launcher.kill()
        launcher.wait(timeout=60)
    wait_until(lambda: processes_with(marker) == [])
    assert interfaces() == before


def started(*options: str, command: list[str]) -> subprocess.Popen[str]:
    return subprocess.Popen(
        hosts_command(*options, command=command),
        stdout=subprocess.PIPE,
        stderr=sys.stderr,
        text=True,
        bufsize=1,
    )


def wait_for_lines(launcher: subprocess.Popen[str], count: int) -> None:
    assert launcher.stdout is not None
    for _ in range(count):
        assert launcher.stdout.readline() != "", "the launcher ended early"


def wait_until(condition: Callable[[], bool], deadline_s: float = 60) -> None:
    end = time.monotonic() + deadline_s
    while not condition():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.02)


def interfaces() -> list[str]:
    return sorted(entry.name for entry in Path("/sys/class/net").iterdir())


def test_secret_of_job_is_on_no_command_line(tmp_path: Path) -> None:
    script = """
import os, pathlib, time, weft
secret = os.environ["WEFT_SECRET"]
shown = [secret.encode() in command.read_bytes() for command in pathlib.Path("/proc").glob("[0-9]*/cmdline")]
stranger = os.environ["RANK"] == "1"
# Rank 0 waits for four seconds only: both begin at one time, with everything loaded.
init = weft.init
here = pathlib.Path(__file__).parent
(here / os.environ["RANK"]).touch()
while not ((here / "0").exists() and (here / "1").exists()):
    time.sleep(0.01)
try:
    init(timeout=4, secret="the secret of another job" if stranger else None)
except weft.Error as error:
    print(len(secret), any(shown), type(error).__name__, secret in str(error))
"""
    path = tmp_path / "meet.py"
    path.write_text(script)
    done = run_hosts("--hosts", "2", "--share", str(tmp_path), command=[sys.executable, str(path)])
    assert printed(done) == {0: ["64 False Timeout False"], 1: ["64 False AuthError False"]}, done.stderr
