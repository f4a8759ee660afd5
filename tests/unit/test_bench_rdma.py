"""Tests of the ratios of times over RDMA and over TCP."""

from benches.rdma.ratios import RatioTable
from weft_lab.bench.rows import BenchRow


def row(transport: str, us: float, size: int = 65536, wrong: int = 0, library: str = "weft") -> BenchRow:
    """A contender's median of one block."""
    return BenchRow(
        collective="all-reduce",
        transport=transport,
        memory="ordinary",
        dtype="float32",
        ranks=2,
        hosts=1,
        gbps=None,
        bytes=size,
        library=library,
        version="1",
        samples=10,
        min_us=us,
        median_us=us,
        p95_us=us,
        algbw_gbs=1.0,
        busbw_gbs=1.0,
        verified=wrong == 0,
        kind="weft" if library == "weft" else "peer",
        rounds_us=[us],
        wrong=wrong,
    )


def test_ratios_are_of_one_block() -> None:
    table = RatioTable()
    for slow in (1.0, 10.0, 3.0):
        table.add([row("rdma", 100 * slow)])
        table.add([row("tcp", 150 * slow), row("tcp", 400 * slow, library="gloo")])
    assert table.ratios(65536, "weft over tcp") == [1.5, 1.5, 1.5]
    assert table.ratios(65536, "gloo") == [4.0, 4.0, 4.0]
    assert table.text().splitlines()[2:] == [
        "| 64K | weft over rdma | 300 | 1.00 | 1.00 to 1.00 |",
        "| 64K | gloo | 1200 | 4.00 | 4.00 to 4.00 |",
        "| 64K | weft over tcp | 450 | 1.50 | 1.50 to 1.50 |",
    ]
    assert table.verified and len(table.to_value()) == 9


def test_wrong_result_is_reported() -> None:
    table = RatioTable()
    table.add([row("rdma", 1.0), row("tcp", 1.0, wrong=3)])
    assert not table.verified
