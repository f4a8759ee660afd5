"""Tests of groups within one process: threads as ranks, and calls rejected before communication."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import weft
from weft.processes.ports import free_ports


def in_threads(**options):
    """Returns the sums of two ranks, which are threads; they meet twice."""

    def rank(number):
        sums = []
        for _ in range(2):
            with weft.init(number, 2, timeout=10, **options) as group:
                sums.append(group.all_reduce(np.full(3, number + 1.0)).tolist())
                group.barrier()
        return sums

    with ThreadPoolExecutor(2) as ranks:
        return [result.result(timeout=30) for result in [ranks.submit(rank, 0), ranks.submit(rank, 1)]]


def free_address():
    return f"127.0.0.1:{free_ports(1)[0]}"


def test_threads_meet_at_an_address():
    assert in_threads(transport="loopback", address=free_address()) == [[[3.0] * 3] * 2] * 2


def test_threads_meet_in_a_store():
    store = weft.MemoryStore()

    def rank(number):
        with weft.init(number, 2, timeout=10, transport="loopback", store=store) as group:
            return group.all_reduce(np.full(3, number + 1.0)).tolist()

    with ThreadPoolExecutor(2) as ranks:
        assert list(ranks.map(rank, range(2))) == [[3.0] * 3] * 2


def test_threads_with_one_endpoint_are_refused():
    store = weft.MemoryStore()

    def rank(number):
        with pytest.raises(weft.ConfigError, match=r'ranks 0 and 1 have one endpoint.* Choose transport "loopback"'):
            weft.init(number, 2, timeout=10, transport="shm", store=store)

    with ThreadPoolExecutor(2) as ranks:
        list(ranks.map(rank, range(2)))


def test_unavailable_congestion_control_is_refused():
    available = "reno.*/proc/sys/net/ipv4/tcp_available_congestion_control"
    with pytest.raises(weft.ConfigError, match=f'tcp_congestion="nosuch" is not allowed: this host has .*{available}'):
        weft.init(0, 1, transport="tcp", tcp_congestion="nosuch", store=weft.MemoryStore())


def test_unknown_keywords_are_refused():
    x = np.ones(3)
    with weft.init(0, 1, transport="loopback") as group:
        for call in (group.all_reduce, group.all_reduce_async):
            with pytest.raises(TypeError, match='unexpected keyword argument "async_op": expected priority, timeout'):
                call(x, async_op=True)
        with pytest.raises(TypeError, match=r"reduce_scatter\(\) got .* call reduce_scatter_async"):
            group.reduce_scatter(x, "sum", x.copy(), async_op=True)
        assert group.all_reduce(x, priority=1, timeout=3.0, tile_bytes=64, tiles_in_flight=1) is x


def test_groups_of_one_rank_are_no_meetings():
    with weft.init(0, 1, transport="loopback"):
        pass
    assert in_threads(transport="loopback", address=free_address()) == [[[3.0] * 3] * 2] * 2
