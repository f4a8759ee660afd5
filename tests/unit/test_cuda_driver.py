"""Tests of the loader of the CUDA driver."""

import mmap
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from tools.emulated_cuda import Emulated, EmulatedArray, library
from weft.device import direct
from weft.device.driver import Driver
from weft.errors import DeviceError, UnsupportedError


@pytest.fixture
def driver() -> Driver:
    return Driver(str(library()))


def test_a_missing_library_is_an_answer() -> None:
    with pytest.raises(UnsupportedError, match=r"no CUDA driver is installed: libnone\.so\.7"):
        Driver("libnone.so.7")


def test_library_without_needed_functions_is_refused(tmp_path: Path) -> None:
    source, path = tmp_path / "old.c", tmp_path / "libold.so"
    source.write_text("int cuInit(unsigned flags) { return (int)flags; }")
    subprocess.run(["cc", "-shared", "-fPIC", "-o", path, source], check=True)
    with pytest.raises(UnsupportedError, match=r"is too old: .*expected CUDA 12 or newer"):
        Driver(str(path))


def test_no_device(driver: Driver) -> None:
    emulated = Emulated(driver)
    emulated.refuse("cuInit", 100)
    try:
        with pytest.raises(UnsupportedError, match=r"finds no device: cuInit .*CUDA_ERROR_NO_DEVICE \(100\)"):
            Driver(driver.path)
    finally:
        emulated.allow_everything()


def test_driver_properties_and_errors(driver: Driver) -> None:
    assert (driver.devices, driver.version, driver.name(0)) == (2, "13.2", "emulated device")
    assert not driver.reach_each_other(0, 1)


def test_errors_name_call_and_reason(driver: Driver) -> None:
    with (
        driver.on(0),
        pytest.raises(DeviceError, match=r"cuMemcpyDtoHAsync_v2 .* CUDA_ERROR_INVALID_VALUE \(1\)") as caught,
    ):
        driver.copy_to_host(8, 16, 4, 0)
    assert caught.value.code == 1


def test_device_of_memory(driver: Driver) -> None:
    array = EmulatedArray(driver, 5, device=1)
    assert driver.device_of(array.address) == 1
    array.free()


def test_memory_in_several_pieces_is_exported_whole(driver: Driver) -> None:
    emulated = Emulated(driver)
    emulated.allocate_in_pieces(4 * mmap.PAGESIZE)
    try:
        array = EmulatedArray(driver, 10_000)
    finally:
        emulated.allow_everything()
    array.view[:] = np.arange(10_000)
    first, count = 1000, 8000  # from the first piece into the third
    with driver.exported(array.address + 4 * first, 4 * count, 0) as (file, offset):
        nbytes = os.fstat(file).st_size
        assert 0 <= offset < mmap.PAGESIZE
        assert nbytes < offset + 4 * count + mmap.PAGESIZE, "nothing around it is exported"
        found = np.frombuffer(os.pread(file, 4 * count, offset), np.int32)
    assert (found == np.arange(first, first + count)).all()
    array.free()


def test_exported_memory_is_that_of_the_device(driver: Driver) -> None:
    array = EmulatedArray(driver, 5000, device=1)
    array.view[:] = np.arange(5000)
    with driver.exported(array.address + 400, 40, 1) as (file, offset), mmap.mmap(file, 0) as mapped:
        assert offset == 400
        assert (np.frombuffer(mapped[offset : offset + 40], np.int32) == np.arange(100, 110)).all()
        array.view[100] = 7
        assert mapped[offset] == 7
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(file)
    array.free()


@pytest.mark.parametrize(
    ("call", "why"),
    [
        ("cuDeviceGetAttribute", r"does not export memory of GPU 0 \(dma-buf\): use its open kernel modules, which do"),
        ("cuMemGetHandleForAddressRange", r"of GPU 0 cannot be exported \(dma-buf\): cuMemGet.*NOT_SUPPORTED \(801\)"),
    ],
)
def test_memory_that_is_not_exported(driver: Driver, call: str, why: str) -> None:
    emulated, array = Emulated(driver), EmulatedArray(driver, 5)
    emulated.refuse(call, 801)
    try:
        with pytest.raises(UnsupportedError, match=why), driver.exported(array.address, 20, 0):
            pass
    finally:
        emulated.allow_everything()
        array.free()


@pytest.mark.parametrize(
    ("export_fails", "summary"), [(False, "a takes it; b refuses it: bad"), (True, "a refuses it: the")]
)
def test_adapters_are_tried_with_every_device(
    driver: Driver, monkeypatch: pytest.MonkeyPatch, export_fails: bool, summary: str
) -> None:
    asked: list[tuple[str, int, int]] = []

    def tried(name: str, address: int, nbytes: int, file: int, offset: int) -> str | None:
        device = driver.device_of(address)
        asked.append((name, device, os.fstat(file).st_size - offset - nbytes))
        return "bad" if (name, device) == ("b", 0) else None

    ports = [("b:1", "", True), ("a:1", "", True), ("a:2", "", True), ("c:1", "", False)]
    native = SimpleNamespace(try_device_memory=tried, rdma_ports=lambda: ports)
    monkeypatch.setattr(direct, "_weft", native)
    emulated = Emulated(driver)
    emulated.refuse("cuDeviceGetAttribute" if export_fails else "none", 801)
    try:
        assert direct.in_words(driver).startswith(summary)
    finally:
        emulated.allow_everything()
    assert asked == ([] if export_fails else [(name, device, 0) for device in (0, 1) for name in "ab"])
    ports[:3] = []
    assert direct.in_words(driver) == "no RDMA port can be used"


def test_a_forked_child_gets_the_reason() -> None:
    code = """if True:
        import os, sys
        from weft.device.driver import Driver, driver
        from weft.errors import UnsupportedError
        driver()
        def inherited():
            with found.on(0):
                pass
        found = driver()
        if os.fork():
            sys.exit(os.waitstatus_to_exitcode(os.wait()[1]))
        for call in (driver, inherited, lambda: Driver(found.path)):
            try:
                call()
            except UnsupportedError as error:
                print(error)
        os._exit(0) if not sys.stdout.flush() else None
    """
    variables = {**os.environ, "WEFT_CUDA_DRIVER": str(library())}
    done = subprocess.run([sys.executable, "-c", code], env=variables, capture_output=True, text=True, check=True)
    assert done.stdout.count("it was forked from one that had begun to use CUDA") == 3, done


def test_import_loads_no_driver() -> None:
    code = "import sys, weft.api.group; assert 'weft.device.driver' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
