"""`weft bench` on emulated hosts: floors, peers, and the remote shell that starts them."""

import subprocess
import sys
from pathlib import Path

import pytest
from emulated_hosts import DEADLINE_S, printed, run_hosts

from weft_lab.bench import launch, peers, rows
from weft_lab.bench.peers import remote_shell
from weft_lab.bench.rows import BenchRow


def _bench(tmp_path: Path, *options: str) -> list[BenchRow]:
    path = tmp_path / "rows.json"
    short = ["--rounds", "2", "--seconds", "0.02", "--processor-seconds", "0.01", "--json", str(path)]
    command = [sys.executable, "-m", "weft.cli", "bench", *options, *short]
    subprocess.run(command, check=True, timeout=DEADLINE_S)
    return rows.read(path)


def test_floors_between_hosts(tmp_path: Path) -> None:
    found = _bench(tmp_path, "all-reduce", "--hosts", "2", "--gbps", "0.2", "--sizes", "12,100K", "--floors")
    for size in (12, 100 << 10):
        by_name = {row.name: row for row in found if row.bytes == size}
        assert list(by_name) == ["weft ordinary", "tcp streams", "tcp poll", "tcp block", "tcp stream"]
        assert all(row.verified and row.median_us > 0 for row in by_name.values())
        stream = by_name["tcp stream"]  # 0.15 s of the line
        assert stream.algbw_gbs * stream.median_us * 1e3 == pytest.approx(0.15 * 0.2e9 / 8, rel=1e-3)
        compared = [row for row in by_name.values() if row.floor is not None]
        assert [row.name for row in compared] == ["weft ordinary", "tcp streams"]
        assert all(row.floor == "bound" and row.of_floor for row in compared)
        assert all(row.processor_ms and row.busy_ms is not None for row in compared)


@pytest.mark.parametrize(("collective", "ranks"), [("broadcast", 2), ("all-reduce", 4)])
def test_bare_program_is_all_reduce_between_hosts(collective: str, ranks: int, tmp_path: Path) -> None:
    found = _bench(tmp_path, collective, "--hosts", "2", "--ranks", str(ranks), "--sizes", "64", "--floors")
    assert [row.name for row in found] == ["weft ordinary", "tcp poll", "tcp block", "tcp stream"]
    assert (found[0].floor == "bound") == (collective == "all-reduce")


@pytest.mark.parametrize("peer", peers.PEERS, ids=lambda peer: peer.name)
def test_peers_that_are_installed(peer: peers.PeerLibrary, tmp_path: Path) -> None:
    if (why := peer.missing(peers.RankPlacement(4, 2))) is not None:
        pytest.skip(why)
    sizes = ("--sizes", "16,96K", "--no-floors")
    found = _bench(tmp_path, "all-reduce", "--hosts", "2", "--ranks", "4", *sizes, "--peers", peer.name)
    theirs = [row for row in found if row.library == peer.name]
    assert [(row.bytes, row.transport) for row in theirs] == [(16, "tcp"), (96 << 10, "tcp")]
    assert all(row.verified and row.processor_ms for row in theirs)


def test_link_delay_is_in_every_time(tmp_path: Path) -> None:
    line = ("--hosts", "2", "--gbps", "1", "--delay-ms", "20", "--floors")
    found = {row.name: row for row in _bench(tmp_path, "all-reduce", *line, "--sizes", "64K", "--peers", "gloo")}
    assert all(row.delay_ms == 20 and row.verified for row in found.values())
    assert all(found[name].min_us > 20e3 for name in ("weft ordinary", "gloo", "tcp streams"))
    assert all(found[name].min_us > 40e3 for name in ("tcp poll", "tcp block"))
    assert found["weft ordinary"].floor_us is not None and found["weft ordinary"].floor_us > 20e3
    # With the kernel's own bounds of buffers it would be 0.07.
    assert found["tcp stream"].algbw_gbs > 0.09


@pytest.mark.parametrize("through", ["library", "torch"])
def test_wire_formats_beside_full_precision(through: str, tmp_path: Path) -> None:
    line = ("--hosts", "2", "--gbps", "0.02", "--no-floors", "--through", through)
    found = _bench(tmp_path, "all-reduce", *line, "--sizes", "1M", "--wire", "fp16,fp8_e5m2")
    names = ["weft ordinary", "weft ordinary fp16", "weft ordinary fp8_e5m2"]
    assert [(row.name, row.wire) for row in found] == list(zip(names, ("full", "fp16", "fp8_e5m2"), strict=True))
    assert all(row.verified for row in found)
    # At such a rate the line takes nearly all of the time.
    full, half, quarter = (row.median_us for row in found)
    assert half < 0.7 * full and quarter < 0.5 * full


def test_the_remote_shell_executes_commands_on_other_hosts() -> None:
    with launch.shared_directory() as directory:
        agent = remote_shell.agent_path(directory)
        launcher = ["sh", "-c", f"{agent} -x host1 echo '$(hostname) and' more; {agent} host2 hostname; exit 3"]
        done = run_hosts(
            *("--hosts", "3", "--share", directory, "--grace", "5"),
            command=[sys.executable, "-m", "weft_lab.bench.peers.remote_shell", "3", directory, *launcher],
        )
    assert done.returncode == 3
    assert printed(done)[0] == ["host1 and more", "host2"]
