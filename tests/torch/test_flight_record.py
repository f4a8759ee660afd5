"""PyTorch's analyzer of flight records (`torchfrtrace`) over those that weft writes."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import torch
import torch.distributed as dist

import weft
from weft import cli
from weft.torch import registration

pytest.importorskip("torch.distributed.flight_recorder.fr_trace", reason="torch has had it since 2.9")
pytestmark = pytest.mark.skipif(
    not registration._accepts_python_backends(), reason="before torch 2.14 the analyzer reads records of NCCL only"
)


def test_analyzer_finds_rank_with_another_call(workers, tmp_path, capsys):
    errors = workers.run(3, odd_call_job)
    (records,) = {re.search(r"flight records: ([^)]+)", error)[1] for error in errors}
    pickles = tmp_path / "pickles"
    assert cli.main(["trace", records, "--torch", str(pickles)]) == 0
    assert "rank 2 called broadcast" in capsys.readouterr().out
    (wrong,) = [one for one in analyzed(pickles) if not one.pass_check]
    assert set(wrong.mismatch_collectives) == {2}
    (mismatch,) = wrong.mismatch_collectives.values()
    assert "'all_reduce' does not match found collective type: 'broadcast'" in str(mismatch.type_of_mismatch)


def test_the_analyzer_finds_nothing_where_nothing_is_wrong(workers, tmp_path):
    workers.run(4, right_calls_job, str(tmp_path / "records"))
    assert cli.main(["trace", str(tmp_path / "records"), "--torch", str(tmp_path / "pickles")]) == 0
    found = analyzed(tmp_path / "pickles")
    assert len(found) > 500
    assert all(one.pass_check for one in found)
    assert {one.collective_name.partition(":")[2] for one in found} >= {
        "all_gather",
        "all_reduce",
        "all_to_all",
        "barrier",
        "broadcast",
        "gather",
        "reduce",
        "reduce_scatter",
        "scatter",
    }


def test_torchs_recorder_shows_no_wrong_states(workers):
    """It would show the ended operation as active: see [Note: States that torch cannot learn]."""
    if not hasattr(dist.distributed_c10d, "FlightRecorderHook"):
        pytest.skip("torch 2.15 records the operations of other backends")
    workers.run(2, operation_job)


def operation_job(rank: int, size: int) -> None:  # noqa: ARG001
    dist.all_reduce(torch.ones(8))
    found = json.loads(torch._C._distributed_c10d._dump_fr_trace_json(onlyActive=True, backend="weft"))
    assert not found.get("entries")


def analyzed(directory: Path) -> list:
    """The collectives that torch's analyzer makes of the records."""
    from torch.distributed.flight_recorder.components.builder import build_db
    from torch.distributed.flight_recorder.components.config_manager import JobConfig
    from torch.distributed.flight_recorder.components.loader import read_dir

    arguments = JobConfig().parse_args([str(directory)])
    details, version = read_dir(arguments)
    return build_db(details, arguments, version).collectives


def odd_call_job(rank: int, size: int) -> str:  # noqa: ARG001
    """Rank 2 broadcasts while the others reduce; the error."""
    store = dist.distributed_c10d._get_default_store()
    x = torch.ones(1000)
    for _ in range(5):
        dist.all_reduce(x)
    # Both others have called, so both records contain it, before rank 2 spoils it.
    if rank == 2:
        store.wait(["called by 0", "called by 1"])
    try:
        work = dist.broadcast(x, 0, async_op=True) if rank == 2 else dist.all_reduce(x, async_op=True)
        store.set(f"called by {rank}", "")
        work.wait()
    except weft.Error as error:
        return str(error)
    raise AssertionError("nothing was wrong")


def right_calls_job(rank: int, size: int, directory: str) -> None:
    """All collectives, in groups of different ranks; writes the records."""
    some = dist.new_group([0, 1])
    x = torch.ones(8)
    for _ in range(1000):  # in two groups more than are kept
        dist.all_reduce(x)
        if rank < 2:
            dist.broadcast(x, 0, group=some)
    every = [torch.empty(8) for _ in range(size)]
    for root in range(size):
        dist.reduce(x, root)
        dist.gather(x, every if rank == root else None, root)
        dist.scatter(x, every if rank == root else None, root)
    dist.all_gather(every, x)
    dist.reduce_scatter(x, every)
    dist.all_to_all_single(torch.empty(8), x)
    if rank < 2:
        dist.send(x, 1 - rank) if rank else dist.recv(x, 1 - rank)
    dist.barrier()
    # A worker that has run other tests may have other endpoints, each with a record.
    record = max(
        weft.flight_record(), key=lambda one: max((entry["time_created_ns"] for entry in one["entries"]), default=0)
    )
    Path(directory).mkdir(exist_ok=True)
    (Path(directory) / f"rank{rank}.json").write_text(json.dumps(record))
