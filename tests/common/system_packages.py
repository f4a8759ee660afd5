"""System packages that tests need: without one they are skipped, named and counted.

With REQUIRE_SYSTEM_PACKAGES=1, as in CI, they fail instead. `make system-packages` installs them.
"""

from __future__ import annotations

import ctypes
import os
import shutil

import pytest

__all__ = ["MARK", "leave_out", "lacking"]

MARK = "system_package"
"""`pytest.mark.system_package("iproute2")` marks a test that needs the package."""
_REQUIRED = os.environ.get("REQUIRE_SYSTEM_PACKAGES", "") not in ("", "0")

_SIGNS = {
    "iproute2": lambda: all(shutil.which(program) for program in ("ip", "tc", "bridge")),
    "libseccomp2": lambda: _loads("libseccomp.so.2"),
    "openssl": lambda: shutil.which("openssl") is not None,
}
"""The check that a package is present."""


def _loads(library: str) -> bool:
    try:
        ctypes.CDLL(library)
    except OSError:
        return False
    return True


def lacking(package: str) -> str | None:
    """Why a test that needs the package is left out; None if it is installed."""
    return None if _SIGNS[package]() else f"needs the system package {package} (make system-packages)"


def leave_out(package: str) -> None:
    """Skips the test if the package is missing, or fails it where packages are required."""
    if reason := lacking(package):
        pytest.fail(reason) if _REQUIRED else pytest.skip(reason)
