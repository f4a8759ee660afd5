"""Test of docs/launchers/ray.md: Ray Train on a cluster of two emulated hosts."""

from __future__ import annotations

from pathlib import Path

import pytest
from cluster import check_trained, on_cluster

pytest.importorskip("ray", reason="ray is not installed here: make test-launchers")


def test_ray_train(tmp_path: Path) -> None:
    check_trained(on_cluster("ray", tmp_path, "python", "ray_train.py", "4", deadline_s=480), ranks=4, hosts=2)
