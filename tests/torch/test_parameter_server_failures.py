"""Tests of the parameter server in which processes are killed, or have little memory."""

import contextlib
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from torch import nn

from weft.processes.ports import free_ports
from weft.torch.parameter_server import Server, ServerOptimizer, Worker

DEADLINE_SECONDS = 90.0
STEPS, KILLED_AT = 40, 15
ADAM = ServerOptimizer("adam", lr=1e-2)
SCRIPT = Path(__file__).with_name("parameter_server_process.py")


def address() -> str:
    return f"127.0.0.1:{free_ports(1)[0]}"


@contextlib.contextmanager
def process(*words):
    """A Python process, which is killed in the end."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    started = subprocess.Popen(
        [sys.executable, *map(str, words)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment
    )
    timer = threading.Timer(DEADLINE_SECONDS, started.kill)
    timer.start()
    try:
        yield started
    finally:
        timer.cancel()
        started.kill()
        started.communicate()


@contextlib.contextmanager
def server(where, *options):
    with process("-m", "weft.cli", "server", "--listen", where, *options) as started:
        line = started.stdout.readline()
        assert "serving at" in line, line + started.stdout.read()
        yield started


def model():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(10, 64), nn.ReLU(), nn.Linear(64, 3))


def losses(addresses, at_step=None, staleness=0):
    """Two workers' losses, step by step; `at_step(step)` is called by the first."""
    nets, found, errors = [model(), model()], [[], []], []

    def work(number):
        generator = torch.Generator().manual_seed(number)
        try:
            with Worker(
                nets[number], ADAM, addresses, name=f"w{number}", workers=2, staleness=staleness, server_timeout=60
            ) as worker:
                for step in range(STEPS):
                    inputs = torch.randn(8, 10, generator=generator)
                    loss = F.cross_entropy(worker(inputs), (inputs.sum(1) > 0).long())
                    loss.backward()
                    if at_step is not None and number == 0:
                        at_step(step)
                    worker.step()
                    found[number].append(loss.item())
                found[number].append(worker.reconnections)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(number,), daemon=True) for number in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(DEADLINE_SECONDS)
    assert not errors, errors
    assert not any(thread.is_alive() for thread in threads), "a worker hangs"
    return found


def test_training_is_bit_identical_after_killed_server(tmp_path):
    """With the process in the middle of pushes: nothing is lost, nothing applied twice."""
    with Server(address()) as undisturbed:
        expected = losses([undisturbed.address])
    where = address()
    with contextlib.ExitStack() as stack:
        first = stack.enter_context(server(where, "--directory", tmp_path / "shard", "--seconds", "1"))

        def strike(step):
            if step == KILLED_AT:
                first.send_signal(signal.SIGKILL)
                first.wait()
                stack.enter_context(server(where, "--directory", tmp_path / "shard"))

        found = losses([where], strike)
    for mine, theirs in zip(found, expected, strict=True):
        assert mine[:-1] == theirs[:-1]
        assert mine[-1] == 1, "one reconnection"


def test_sigterm_writes_the_shard(tmp_path):
    where = address()
    with server(where, "--directory", tmp_path) as first:
        with Worker(model(), ADAM, [where]) as worker:
            worker(torch.ones(1, 10)).sum().backward()
            worker.step()
        first.terminate()
        assert first.wait(30) == 0
    assert len(list(tmp_path.glob("snapshot-*"))) == 1
    assert [path.stat().st_size for path in tmp_path.glob("journal-*")] == [0]


def test_others_continue_after_killed_worker():
    net = nn.Linear(10, 3)
    with (
        Server(address()) as running,
        process(SCRIPT, "endless", running.address) as other,
        Worker(net, ServerOptimizer("sgd", lr=0.1), [running.address], workers=2) as worker,
    ):
        for step in range(12):
            worker(torch.ones(1, 10)).sum().backward()
            worker.step()
            worker.wait()
            if step == 5:
                assert other.stdout.readline() == "step\n"
                other.kill()
        (statistics,) = worker.statistics()
    assert len(statistics["members"]) == 1
    assert statistics["updates"]["0.0"] == 12


def test_an_embedding_larger_than_the_workers_memory_trains():
    with Server(address()) as running, process(SCRIPT, "limited", running.address) as worker:
        output = worker.communicate(timeout=DEADLINE_SECONDS)[0]
    assert worker.returncode == 0, output
    whole, trained = output.splitlines()[-2:]
    assert "whole:" in whole, "the table as a whole does not fit"
    _, first, last = trained.split()
    assert float(last) < float(first)


@pytest.mark.parametrize("missing", ["--listen", None])
def test_command_reports_damage(missing, tmp_path):
    words = ["-m", "weft.cli", "server"]
    if missing is None:
        words += ["--listen", "nowhere", "--directory", tmp_path]
    with process(*words) as started:
        output = started.communicate(timeout=DEADLINE_SECONDS)[0]
    assert started.returncode != 0
    assert (missing or "nowhere") in output
