"""Tests of modules that processes load, and when."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import sys
import torch.distributed as dist
import weft.torch
from weft.torch import registration

assert "weft.torch.backend" not in sys.modules
registration.load()
before = set(sys.modules)
dist.init_process_group("weft", init_method="tcp://127.0.0.1:0", rank=0, world_size=1)
print(sorted(name for name in set(sys.modules) - before if name.startswith("weft")))
dist.destroy_process_group()
"""


def test_process_that_has_waited_loads_nothing_for_its_first_group() -> None:
    """Else all ranks would wait while a newcomer loads it."""
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stdout) == (0, "[]\n"), done.stderr
