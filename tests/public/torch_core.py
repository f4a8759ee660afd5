"""torch's core suite of torch.distributed, with the test class missing from the package."""

from __future__ import annotations

import os

from substitute.weft_as_gloo import INSTEAD_OF_GLOO
from torch.testing._internal.distributed import distributed_test

if os.environ[INSTEAD_OF_GLOO] != "gloo":
    # The suite expects the profiler to show events named "gloo:..." from the backends of these
    # lists only.
    distributed_test.PROFILING_SUPPORTED_BACKENDS.remove("gloo")
    distributed_test.SEND_RECV_PROFILING_SUPPORTED_BACKENDS.remove("gloo")


class TestDistributed(distributed_test.TestDistBackend, distributed_test.DistributedTest._DistTestBase):
    """As in torch's own tests: every rank is a process."""

    def setUp(self) -> None:
        super().setUp()
        self._spawn_processes()
