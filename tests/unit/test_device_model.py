"""Tests of the model of operations on device memory."""

import pytest

from benches.device.resnet50 import resnet50
from weft.device.model import CopyEngines, Gradient, backward_by_host_seconds, backward_seconds, pipeline_seconds

MS = 1e-3
ALONE = 164 * MS
"""Backward of one 2080 Ti: published."""


def test_one_tile_takes_all_stages_in_turn() -> None:
    engines = CopyEngines(1e9, 2e9, 1e-5, 4e9)
    assert pipeline_seconds(1_000_000, 1 << 20, 8, engines) == pytest.approx(1e-3 + 0.5e-3 + 2e-5 + 0.25e-3)


def test_many_tiles_take_the_slowest_stage() -> None:
    engines = CopyEngines(1e9, 2e9, 0.0, 4e9)
    assert pipeline_seconds(100_000_000, 1_000_000, 8, engines) == pytest.approx(0.1 + 0.5e-3 + 0.25e-3)


def test_one_slot_lets_nothing_overlap() -> None:
    engines = CopyEngines(1e9, 1e9, 0.0, 1e9)
    assert pipeline_seconds(10_000_000, 1_000_000, 1, engines) == pytest.approx(30e-3)


def test_nothing_takes_nothing() -> None:
    assert pipeline_seconds(0, 1 << 20, 8, CopyEngines(1e9, 1e9, 1e-5, 1e9)) == 0.0


def test_published_figures_of_resnet50() -> None:
    """203 ms with NCCL's kernels, 174 ms by way of the host, 164 ms alone, on 8 cards.

    Published: 164 ms, packs of 10 MB, 90 % of NCCL's throughput by way of the host. Two parameters
    are not, and are chosen here to fit the other two figures: the rate of NCCL's all-reduce over
    PCIe, and the share of the multiprocessors that its kernels occupy. So this shows that the
    published figures go together by this model, and not that it predicts them.
    """
    nccl_rate, occupied = 0.67e9, 0.235
    shared = {"bucket_bytes": 10_000_000, "bucket_latency": 0.2 * MS}
    with_kernels = backward_seconds(resnet50(ALONE), rate=nccl_rate, stolen=occupied, **shared)
    by_host = backward_seconds(resnet50(ALONE), rate=0.9 * nccl_rate, stolen=0.0, **shared)
    alone = backward_seconds(resnet50(ALONE), rate=1e15, stolen=0.0, bucket_bytes=1 << 40, bucket_latency=0.0)
    assert alone == pytest.approx(ALONE)
    assert by_host == pytest.approx(174 * MS, abs=1 * MS)
    assert with_kernels == pytest.approx(203 * MS, abs=1 * MS)


def test_single_staged_bucket_follows_backward() -> None:
    engines = CopyEngines(1e9, 2e9, 1e-5, 4e9)
    gradients = [Gradient(3_000_000, 0.1), Gradient(4_000_000, 0.2)]
    whole = backward_by_host_seconds(gradients, bucket_bytes=1 << 30, tile_bytes=500_000, slots=8, engines=engines)
    assert whole == pytest.approx(0.3 + pipeline_seconds(7_000_000, 500_000, 8, engines))


def test_staged_buckets_hide_all_but_last() -> None:
    engines = CopyEngines(1e9, 1e9, 0.0, 1e15)
    gradients = [Gradient(1_000_000, 0.002)] * 10
    found = backward_by_host_seconds(gradients, bucket_bytes=1_000_000, tile_bytes=1_000_000, slots=8, engines=engines)
    assert found == pytest.approx(0.02 + 0.002)


def test_steady_buckets_cost_their_slowest_stage() -> None:
    engines = CopyEngines(1e9, 1e9, 0.0, 0.5e9)
    gradients = [Gradient(1_000_000, 1e-4)] * 100
    found = backward_by_host_seconds(gradients, bucket_bytes=2_000_000, tile_bytes=1_000_000, slots=8, engines=engines)
    assert found == pytest.approx(2e-4 + 1e-3 + 100 * 2e-3 + 1e-3)
