"""Tests of the loader of the CUDA driver."""

import subprocess
import sys
from pathlib import Path

import pytest

from tools.emulated_cuda import Emulated, EmulatedArray, library
from weft.device.driver import Driver
from weft.errors import DeviceError, UnsupportedError


@pytest.fixture
def driver() -> Driver:
    return Driver(str(library()))


def test_a_missing_library_is_an_answer() -> None:
    with pytest.raises(UnsupportedError, match=r"no CUDA driver here: libnone\.so\.7"):
        Driver("libnone.so.7")


def test_a_library_without_what_is_needed(tmp_path: Path) -> None:
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


def test_what_a_driver_says(driver: Driver) -> None:
    assert (driver.devices, driver.version, driver.name(0)) == (2, "13.2", "emulated device")
    assert not driver.reach_each_other(0, 1)


def test_errors_name_call_and_reason(driver: Driver) -> None:
    with (
        driver.on(0),
        pytest.raises(DeviceError, match=r"cuMemcpyDtoHAsync_v2 .* CUDA_ERROR_INVALID_VALUE \(1\)") as told,
    ):
        driver.copy_to_host(8, 16, 4, 0)
    assert told.value.code == 1


def test_device_of_memory(driver: Driver) -> None:
    array = EmulatedArray(driver, 5, device=1)
    assert driver.device_of(array.address) == 1
    array.free()


def test_import_loads_no_driver() -> None:
    code = "import sys, weft.group; assert 'weft.device.driver' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
