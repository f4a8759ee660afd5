"""Tests of the counters for Prometheus: text format, publication, and the Grafana dashboard."""

import contextlib
import json
import os
import re
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from pathlib import Path

import numpy as np
import pytest
from prometheus_client.parser import text_string_to_metric_families

import weft
from weft.observability.metrics import METRICS, Publisher, exposition, server
from weft.observability.metrics.collector import Collector
from weft.processes.ports import free_ports

ROOT = Path(__file__).parents[2]


def parsed(text):
    """The samples of a text, by name and labels, as Prometheus' own parser reads it."""
    families = list(text_string_to_metric_families(text))
    samples = [sample for family in families for sample in family.samples]
    found = {(sample.name, frozenset(sample.labels.items())): sample.value for sample in samples}
    assert len(found) == len(samples), "a series twice"
    return found


def value(samples, name, **labels):
    return samples[name, frozenset(labels.items())]


def collected(collector):
    return parsed(exposition.text(collector.samples()))


def test_the_format_is_prometheus_own():
    collector = Collector(3)
    collector.failed('a "group"\\of\nlines', weft.Timeout())
    text = exposition.text(collector.samples())
    assert value(parsed(text), "weft_failures_total", rank="3", group='a "group"\\of\nlines', kind="Timeout") == 1
    families = {family.name: family for family in text_string_to_metric_families(text)}
    assert set(families) == {metric.name.removesuffix("_total") for metric in METRICS}
    for metric in METRICS:
        family = families[metric.name.removesuffix("_total")]
        assert (family.type, family.documentation) == (metric.kind, metric.help)


def test_calls_are_counted_once_requested():
    collector = Collector(0)
    with weft.init(0, 1, transport="loopback", name="one") as group:
        group.barrier()
        collector.watch(group.native)
        for _ in range(3):
            group.all_reduce(np.ones(1000, np.float32))
        group.all_gather(np.ones(10), np.empty(10))
        group.all_reduce_async(np.ones(1000, np.float32)).wait()
        samples = collected(collector)
    labels = {"rank": "0", "group": "one"}
    assert value(samples, "weft_calls_total", operation="all-reduce", **labels) == 4
    assert value(samples, "weft_call_bytes_total", operation="all-reduce", **labels) == 16_000
    assert value(samples, "weft_call_bytes_total", operation="all-gather", **labels) == 80
    assert value(samples, "weft_call_seconds_total", operation="all-reduce", **labels) > 0
    assert value(samples, "weft_operations_in_flight", **labels) == 0
    assert not any("barrier" in dict(labels).values() for _, labels in samples)


def test_messages_are_counted():
    collector = Collector(0)
    with weft.init(0, 1, transport="loopback", name="one") as group:
        collector.watch(group.native)
        receiving = group.recv_async(np.empty(4))
        assert value(collected(collector), "weft_operations_in_flight", rank="0", group="one") == 1
        group.send(np.ones(4), 0)
        assert receiving.wait() == 0
        samples = collected(collector)
    assert value(samples, "weft_call_bytes_total", rank="0", group="one", operation="send") == 32
    assert value(samples, "weft_call_bytes_total", rank="0", group="one", operation="receive") == 32
    assert value(samples, "weft_operations_in_flight", rank="0", group="one") == 0


def test_one_sided_operations_are_counted():
    collector = Collector(0)
    with weft.init(0, 1, transport="loopback", name="one") as group:
        collector.watch(group.native)
        cells = group.symmetric(10, np.int64, signals=1)
        cells.put(0, np.arange(10))
        cells.put_signal(0, 5, at=1)
        waiting = cells.wait_signal_async(value=2)
        assert value(collected(collector), "weft_operations_in_flight", rank="0", group="one") == 1
        cells.signal(0)
        waiting.wait()
        assert cells.get(0, count=2).tolist() == [0, 5]
        assert cells.fetch_add(0, 1) == 0
        cells.quiet()
        samples = collected(collector)
    labels = {"rank": "0", "group": "one"}
    expected = {
        "put": (2, 88),
        "signal": (1, 8),
        "wait-signal": (1, 0),
        "get": (1, 16),
        "atomic": (1, 8),
        "quiet": (1, 0),
    }
    for operation, (calls, nbytes) in expected.items():
        assert value(samples, "weft_calls_total", operation=operation, **labels) == calls
        assert value(samples, "weft_call_bytes_total", operation=operation, **labels) == nbytes
    assert value(samples, "weft_operations_in_flight", **labels) == 0


def test_counters_of_groups_sharing_a_name_accumulate():
    collector = Collector(0)
    for _ in range(3):
        with weft.init(0, 1, transport="loopback", name="again") as group:
            collector.watch(group.native)
            group.all_reduce(np.ones(4))
        del group
        samples = collected(collector)
    assert value(samples, "weft_calls_total", rank="0", group="again", operation="all-reduce") == 3


def test_failures_are_counted_by_kind(monkeypatch, tmp_path):
    publisher = Publisher(tmp_path / "weft.prom", 0, 0)
    monkeypatch.setattr(weft.observability.reports, "_publisher", publisher)
    with weft.init(0, 1, transport="loopback", name="one") as group:
        before = collected(publisher.collector)
        group.abort("enough")
        labels = {"rank": "0", "group": "one", "kind": "Aborted"}
        until = time.monotonic() + 10
        while not value(after := collected(publisher.collector), "weft_failures_total", **labels):
            assert time.monotonic() < until  # a thread of its own counts
    assert value(before, "weft_failures_total", **labels) == 0
    assert value(after, "weft_failures_total", **labels) == 1


def test_the_pool_is_counted():
    with weft.init(0, 1, transport="loopback", pool_bytes="16M"):
        samples = collected(Collector(0))
    assert 0 < value(samples, "weft_pool_bytes", rank="0") <= value(samples, "weft_pool_bytes_max", rank="0")


def fetched(port, path="/metrics"):
    with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=10) as answer:
        assert answer.headers["Content-Type"] == exposition.CONTENT_TYPE
        return answer.read().decode()


def test_each_process_of_a_host_has_a_port():
    port = free_ports(1)[0] - 1
    Publisher(("127.0.0.1", port), 5, 1)
    assert value(parsed(fetched(port + 1)), "weft_info", rank="5", version=weft.__version__) == 1
    with pytest.raises(urllib.error.HTTPError, match="404"):
        fetched(port + 1, "/")


def idle(port):
    return socket.create_connection(("127.0.0.1", port), timeout=10)


def test_idle_connections_take_no_resources():
    port = free_ports(1)[0]
    Publisher(("127.0.0.1", port), 0, 0)
    threads, descriptors = set(threading.enumerate()), len(list(Path("/proc/self/fd").iterdir()))
    with contextlib.ExitStack() as stack:
        for _ in range(100):
            stack.enter_context(idle(port))
            assert "weft_info" in fetched(port)
        taken = len(list(Path("/proc/self/fd").iterdir())) - descriptors - 100
        assert taken <= server._CONNECTIONS_MAX
        assert set(threading.enumerate()) <= threads


def test_a_connection_that_asks_nothing_is_ended(monkeypatch):
    monkeypatch.setattr(server, "_SECONDS_MAX", 0.1)
    port = free_ports(1)[0]
    Publisher(("127.0.0.1", port), 0, 0)
    with idle(port) as client:
        client.sendall(b"GET /metrics")
        assert client.recv(1) == b""


def test_a_request_without_an_end_is_ended():
    port = free_ports(1)[0]
    Publisher(("127.0.0.1", port), 0, 0)
    with idle(port) as client, contextlib.suppress(ConnectionError):
        client.sendall(b"GET /" + b"x" * 20_000)
        assert client.recv(1) == b""
    with idle(port) as client:
        client.sendall(b"POST /metrics HTTP/1.1\r\n\r\n")
        assert client.recv(100).startswith(b"HTTP/1.1 405")


def test_counting_failure_ends_neither_server_nor_job(monkeypatch, caplog):
    port = free_ports(1)[0]
    publisher = Publisher(("127.0.0.1", port), 0, 0)
    with monkeypatch.context() as patch:
        patch.setattr(publisher.collector, "samples", lambda: 1 / 0)
        with pytest.raises(urllib.error.HTTPError, match="500"):
            fetched(port)
    assert "the counters could not be read" in caplog.text
    assert "weft_info" in fetched(port)


EXHAUSTED = """
import resource, socket, sys, urllib.request, numpy, weft
with weft.init(0, 1, transport="loopback", metrics=f":{sys.argv[1]}") as group:
    resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
    idle = []
    try:
        while True:
            idle.append(socket.create_connection(("127.0.0.1", int(sys.argv[1]))))
    except OSError as error:
        assert error.errno == 24, error
    group.all_reduce(numpy.ones(4))
    del idle[:]
    assert b"weft_info" in urllib.request.urlopen(f"http://127.0.0.1:{sys.argv[1]}/metrics", timeout=30).read()
"""


def test_a_shortage_of_descriptors_is_survived():
    port = str(free_ports(1)[0])
    subprocess.run([sys.executable, "-c", EXHAUSTED, port], check=True, timeout=60)


def test_a_port_that_is_taken_is_a_warning():
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1] - 1
        with pytest.warns(
            RuntimeWarning, match=rf"WEFT_METRICS: cannot listen at 127.0.0.1:{port + 1} .* here {port} \+ 1"
        ):
            Publisher(("127.0.0.1", port), 5, 1)


def test_another_place_is_a_warning(tmp_path):
    publisher = Publisher(tmp_path / "weft.prom", 0, 0)
    publisher.check_target(tmp_path / "weft.prom")
    with pytest.warns(RuntimeWarning, match=r"are published at .*weft\.prom already"):
        publisher.check_target(("127.0.0.1", 9400))


def test_file_is_named_by_rank_and_finally_written(tmp_path):
    program = "import numpy, weft\ng = weft.init(0, 1, transport='loopback')\ng.all_reduce(numpy.ones(4))"
    variables = {**os.environ, "WEFT_METRICS": str(tmp_path / "weft.prom")}
    subprocess.run([sys.executable, "-c", program], env=variables, check=True, timeout=60)
    assert [path.name for path in tmp_path.iterdir()] == ["weft-rank0.prom"]
    samples = parsed((tmp_path / "weft-rank0.prom").read_text())
    assert value(samples, "weft_calls_total", rank="0", group="world", operation="all-reduce") == 1
    assert value(samples, "weft_pool_bytes_max", rank="0") > 0


def test_unwritable_file_is_a_warning(tmp_path):
    with pytest.warns(RuntimeWarning, match=r"WEFT_METRICS: cannot write .*-rank0.prom .*No such file"):
        Publisher(tmp_path / "missing" / "weft.prom", 0, 0)


def test_dashboard_queries_existing_metrics():
    dashboard = json.loads((ROOT / "docs/how-to/grafana/weft.json").read_text())
    assert {"title", "uid", "schemaVersion", "panels", "templating", "time"} <= set(dashboard)
    panels = dashboard["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    known = {metric.name for metric in METRICS}
    asked = set()
    for panel in panels:
        assert {"title", "type", "gridPos", "datasource", "targets"} <= set(panel), panel["title"]
        for target in panel["targets"]:
            asked |= set(re.findall(r"\bweft_\w+", target["expr"]))
    asked |= set(re.findall(r"\bweft_\w+", json.dumps(dashboard["templating"])))
    assert asked == known, "unknown, or not shown"
