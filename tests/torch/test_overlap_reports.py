"""Tests of a model's reports about its communication: report, trace, picture."""

from __future__ import annotations

import contextlib
import json
import re
import xml.etree.ElementTree
from pathlib import Path

import pytest
import torch
from overlap_setup import Setup, mlp, train
from worker_pool import WorkerPool

import weft
import weft.torch

METRICS = ("step_ms", "waiting_ms", "waiting_share", "update_ms", "sent_bytes")


def test_report(workers) -> None:
    workers.run(2, report_job)


def test_report_of_layers(workers) -> None:
    workers.run(2, layers_job)


def test_timeline(workers, tmp_path: Path) -> None:
    workers.run(2, timeline_job, str(tmp_path))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["one.json", "picture.svg", "rank0.json", "rank1.json"]
    for rank in range(2):
        events = json.loads((tmp_path / f"rank{rank}.json").read_text())["traceEvents"]
        slices = [event for event in events if event["ph"] == "X"]
        assert {event["cat"] for event in slices} == {"forward", "backward", "wait", "update", "average"}
        assert sum(event["cat"] == "backward" for event in slices) == 2
        assert sum(event["cat"] == "average" for event in slices) == 2 * 6
        assert all(event["dur"] >= 0 and event["pid"] == rank for event in slices)
        names = {event["args"]["name"] for event in events if event["name"] == "thread_name"}
        assert {"computation", "communication", "updates"} <= names
    picture = xml.etree.ElementTree.fromstring((tmp_path / "picture.svg").read_text())
    assert texts(picture, "name") == ["computation", "communication", "updates"]
    tips = [title.text or "" for title in picture.iter("{http://www.w3.org/2000/svg}title")]
    for bucket in range(6):
        assert sum(tip.startswith(f"bucket {bucket}: ") for tip in tips) == 1
        assert sum(tip.startswith(f"update {bucket}, ") for tip in tips) == 1


def texts(picture: xml.etree.ElementTree.Element, kind: str) -> list[str | None]:
    found = picture.iter("{http://www.w3.org/2000/svg}text")
    return [text.text for text in found if text.get("class") == kind]


@pytest.mark.parametrize("overlapped", [True, False])
def test_step_metrics(overlapped: bool) -> None:
    """In new processes: metrics are of all models, also of earlier tests' that still exist."""
    with contextlib.closing(WorkerPool()) as workers:
        workers.run(2, metrics_job, overlapped)


def metrics_job(rank: int, _size: int, overlapped: bool) -> None:
    assert weft.torch.step_metrics() == {}
    model, optimizer = Setup(overlapped=overlapped)(mlp(rank), fusion="none")
    train(model, optimizer, rank, 1)
    assert weft.torch.step_metrics() == {}
    train(model, optimizer, rank, 3)
    metrics = weft.torch.step_metrics()
    assert set(metrics) == {f"weft/{name}" for name in METRICS}
    assert 0 <= metrics["weft/waiting_ms"] < metrics["weft/step_ms"]
    assert metrics["weft/waiting_share"] == pytest.approx(metrics["weft/waiting_ms"] / metrics["weft/step_ms"])
    assert (metrics["weft/update_ms"] > 0) == overlapped
    assert metrics["weft/sent_bytes"] == sum(4 * (parameter.numel() + 1) for parameter in model.parameters())
    model.unwrap()
    assert weft.torch.step_metrics() == {}


def report_job(rank: int, _size: int) -> None:
    model, optimizer = Setup(overlapped=True)(mlp(rank), fusion="none", algorithm="ring")
    train(model, optimizer, rank, 6)
    model.flush()
    report = model.report()
    assert report.plan == model.plan.hash
    assert report.mode == "exact"
    assert report.steps == 6
    parameters = list(model.parameters())
    assert report.memory_bytes == sum(4 * (parameter.numel() + 1) for parameter in parameters)
    storages = {parameter.grad.untyped_storage().data_ptr() for parameter in parameters}
    assert len(storages) == 1, "gradients lie in the buckets and nowhere else"
    assert [bucket.parameters for bucket in report.buckets] == [
        (model.plan.parameters[bucket.parameters[0]].name,) for bucket in model.plan.buckets
    ]
    for bucket in report.buckets:
        assert bucket.nbytes == 4 * dict(model.module.named_parameters())[bucket.parameters[0]].numel()
        assert bucket.algorithm == "ring"
        assert bucket.sent_bytes == bucket.nbytes + 4
        assert bucket.communication_s is not None
        assert bucket.communication_s > 0
        assert bucket.window_s is not None
        assert bucket.exposed_s is not None
        assert 0 <= bucket.exposed_s < report.forward_s + report.backward_s + 1
    spans = model._reducer.observer.spans
    wait = next(span for span in spans if span.kind == "wait")
    spans.append(wait._replace(end_ns=wait.end_ns + 10**12))
    assert model.report().exposed_s < 100, "one slow step in six, of a thousand seconds"
    read = json.loads(json.dumps(report.to_dict()))
    assert read["exposed_s"] == pytest.approx(sum(bucket["exposed_s"] for bucket in read["buckets"]))
    assert read["verdict"] == list(report.verdict) and "full" not in read
    assert 0 < report.exposed_s < report.step_s * 1.5 and 0 <= report.hidden_s <= report.communication_s
    time = r" +[\d.]+ [mu]?s"
    lines = str(report).splitlines()
    assert re.match(rf"step{time}: waits for communication{time} \(\d+%\), hides{time}", lines[0])
    assert re.match(r"longest wait: bucket \d \(\d\.(weight|bias)\), ", lines[1])
    assert any(re.fullmatch(rf" +0 +8 +12({time}){{3}}  ring +4\.bias", line) for line in lines), lines
    assert any(line.startswith("sent: the gradients' bytes and a flag") for line in lines)
    assert all(len(line) <= 100 for line in lines)
    full = str(model.report(full=True)).splitlines()
    assert any(re.fullmatch(rf" +0 +8 +12({time}){{3}} +0  ring +4\.bias", line) for line in full), full


def layers_job(rank: int, _size: int) -> None:
    model, optimizer = Setup(overlapped=True)(mlp(rank), fusion="lazy", replan_after=3)
    train(model, optimizer, rank, 3)
    assert model.report().layers == ()
    train(model, optimizer, rank, 5)
    report = model.report()
    assert [layer.layer for layer in report.layers] == ["0", "2", "4"]
    assert [layer.nbytes for layer in report.layers] == [4 * 9 * 7, 4 * 7 * 10, 4 * 2 * 8]
    windows = [layer.window_s or 0.0 for layer in report.layers]
    assert windows == sorted(windows)
    assert windows[2] > 0
    assert [layer.buckets for layer in report.layers] == [(0,)] * 3
    assert [layer.first_of for layer in report.layers] == [(0,), (), ()]
    exposed = [layer.exposed_s for layer in report.layers]
    assert exposed == [report.exposed_s, 0, 0]
    lines = str(report).splitlines()
    first = next(number for number, line in enumerate(lines) if line.endswith("  layer"))
    assert [line.split()[-1] for line in lines[first + 1 : first + 4]] == ["0", "2", "4"]
    assert all(len(line) <= 100 for line in lines)
    assert json.loads(json.dumps(report.to_dict()))["layers"][2]["layer"] == "4"


def timeline_job(rank: int, _size: int, directory: str) -> None:
    model, optimizer = Setup(overlapped=True)(mlp(rank), fusion="none")
    train(model, optimizer, rank, 3)
    with weft.torch.timeline(f"{directory}/rank{{rank}}.json"):
        train(model, optimizer, rank, 2)
        model.flush()
    for name in ("one.json", "picture.svg"):
        with weft.torch.timeline(f"{directory}/{name}"):
            train(model, optimizer, rank, 1)
            model.flush()
    with pytest.raises(weft.ArgumentError, match=r"step\.txt"), weft.torch.timeline("step.txt"):
        torch.ones(1)
