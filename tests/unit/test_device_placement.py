"""Tests of the placement of host memory at the NUMA nodes of devices."""

import mmap
import re
from pathlib import Path

import numpy as np
import pytest

import weft
from benches.gpu.paths import host_nodes, paths
from tools.emulated_cuda import Emulated, library
from weft.device import placement
from weft.device.driver import Driver
from weft.device.memory import Registered, address_of
from weft.device.placement import memory_at, move_pages, node_of

PAGES = 64
several_nodes = pytest.mark.skipif(len(host_nodes()) < 2, reason="one NUMA node here: see make test-numa")


def pages_by_node(address: int) -> dict[int, int]:
    """The number of pages on each node of the mapping that begins at an address."""
    for line in Path("/proc/self/numa_maps").read_text().splitlines():
        if int(line.split()[0], 16) == address:
            return {int(node): int(pages) for node, pages in re.findall(r" N(\d+)=(\d+)", line)}
    raise AssertionError(f"nothing is mapped at {address:#x}")


@pytest.mark.parametrize(("content", "node"), [("1", 1), ("0", 0), ("-1", None), ("", None), (None, None)])
def test_node_of_a_device(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, content: str | None, node: int | None
) -> None:
    monkeypatch.setattr(placement, "_PCI_DEVICES", tmp_path)
    if content is not None:
        (tmp_path / "0000:5e:00.0").mkdir()
        (tmp_path / "0000:5e:00.0" / "numa_node").write_text(content)
    assert node_of(Driver(str(library())), 1) == node


def test_policies_come_back() -> None:
    before = placement._policy()
    assert before is not None, "containers that refuse the call are none that tests run in"
    with memory_at(0):
        during = placement._policy()
        assert during is not None and (during[0], during[1][0]) == (1, 1)
        with memory_at(None):
            pass
    after = placement._policy()
    assert after is not None and (before[0], list(before[1])) == (after[0], list(after[1]))


def test_rates_of_paths(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("benches.gpu.paths.node_of", lambda _driver, _device: 0)
    driver = Driver(str(library()))
    emulated = Emulated(driver)
    before = emulated.live
    (row,) = paths(driver, 0, [0], nbytes=1 << 20)
    assert row["own"] and row["to host"] > 0 and row["to device"] > 0
    assert (emulated.live, emulated.registered_bytes) == (before, 0)


@several_nodes
@pytest.mark.parametrize("node", [0, 1])
def test_pages_lie_where_they_are_wanted(node: int) -> None:
    with memory_at(node):
        memory = np.frombuffer(mmap.mmap(-1, PAGES * 4096), np.uint8)
        memory[:] = 1
    assert pages_by_node(address_of(memory)) == {node: PAGES}


@several_nodes
def test_pages_are_moved() -> None:
    memory = np.frombuffer(mmap.mmap(-1, PAGES * 4096), np.uint8)
    memory[:] = 1
    for node in (0, 1):
        move_pages(address_of(memory) + 1, 10 * 4096, node)  # nine of them are whole
        move_pages(address_of(memory) + 20 * 4096, (PAGES - 20) * 4096, 1 - node)
        assert pages_by_node(address_of(memory))[1 - node] >= PAGES - 20
        assert pages_by_node(address_of(memory))[node] >= 9
    assert memory.all()


def test_pages_that_cannot_be_moved_stay() -> None:
    memory = np.frombuffer(mmap.mmap(-1, PAGES * 4096), np.uint8)
    memory[::2] = 1
    move_pages(address_of(memory), memory.nbytes, placement._NODES_MAX - 1)
    move_pages(address_of(memory), 10, 0)
    assert memory.sum() == memory.nbytes // 2


@several_nodes
@pytest.mark.parametrize("node", [0, 1])
def test_symmetric_memory_lies_where_it_is_wanted(node: int) -> None:
    with weft.init(0, 1) as group, memory_at(node):
        part = np.asarray(group.symmetric(PAGES * 4096, np.uint8, signals=0))
        mapped = pages_by_node(address_of(part) // 4096 * 4096)
        assert mapped.get(node, 0) >= PAGES and sum(mapped.values()) - mapped[node] <= 1


@several_nodes
@pytest.mark.parametrize("node", [0, 1])
def test_registered_memory_lies_near_its_device(monkeypatch: pytest.MonkeyPatch, node: int) -> None:
    monkeypatch.setattr("weft.device.memory.node_of", lambda _driver, _device: node)
    driver = Driver(str(library()))
    registered = Registered(driver, 0, np.frombuffer(mmap.mmap(-1, PAGES * 4096), np.uint8))
    assert pages_by_node(registered.address) == {node: PAGES}
    registered.close()
