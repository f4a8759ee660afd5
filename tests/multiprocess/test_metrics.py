"""Tests of counters between processes, read as Prometheus reads them."""

import contextlib
import signal
import socket
import time
import urllib.request

import tasks_metrics
from prometheus_client.parser import text_string_to_metric_families
from team import DEADLINE_SECONDS, Team

from weft.processes.ports import free_ports


def read(port):
    """A function that adds up the samples with some name and labels."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
        text = answer.read().decode()
    samples = [sample for family in text_string_to_metric_families(text) for sample in family.samples]
    return lambda name, **labels: sum(
        sample.value for sample in samples if sample.name == name and labels.items() <= sample.labels.items()
    )


def two_ports():
    """The first of two free ports in a row."""
    while True:
        first = free_ports(1)[0]
        with contextlib.suppress(OSError), socket.create_server(("127.0.0.1", first + 1)):
            return first


def test_counters_of_two_ranks():
    port = two_ports()
    team = Team(2, "tcp", {"WEFT_METRICS": f":{port}"})
    team.run(tasks_metrics.calls)
    for rank in range(2):
        count = read(port + rank)
        labels = {"rank": str(rank), "group": "world"}
        assert count("weft_calls_total", operation="all-reduce", **labels) == 11
        assert count("weft_call_bytes_total", operation="all-reduce", **labels) == 20_000_160
        assert count("weft_calls_total", operation="send", **labels) == 1
        assert count("weft_call_bytes_total", operation="receive", **labels) == 80
        assert 0 < count("weft_call_seconds_total", operation="all-reduce", **labels) < DEADLINE_SECONDS
        assert count("weft_operations_in_flight", **labels) == 0
        assert count("weft_failures_total") == 0
        # For a sum of two ranks, as much as the vector crosses in each direction.
        for direction in ("sent", "received"):
            assert 20_000_000 <= count(f"weft_network_{direction}_bytes_total", transport="tcp") < 25_000_000

    team.signal(0, signal.SIGKILL)
    ends = time.monotonic() + DEADLINE_SECONDS
    while not read(port + 1)("weft_failures_total", group="world", kind="PeerLost"):
        assert time.monotonic() < ends
        time.sleep(0.01)
    team.kill()
