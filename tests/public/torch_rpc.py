"""torch's DDP suite under distributed autograd, with the classes missing from the package."""

from __future__ import annotations

from torch.testing._internal.common_distributed import MultiProcessTestCase
from torch.testing._internal.distributed import ddp_under_dist_autograd_test as suite
from torch.testing._internal.distributed.rpc.tensorpipe_rpc_agent_test_fixture import TensorPipeRpcAgentTestFixture


class _Processes(MultiProcessTestCase):
    def setUp(self) -> None:
        super().setUp()
        self._spawn_processes()


class TestDdpUnderDistAutograd(TensorPipeRpcAgentTestFixture, suite.DdpUnderDistAutogradTest, _Processes):
    """A trainer's model is DDP, and a part of it is on a parameter server."""


class TestDdpComparison(TensorPipeRpcAgentTestFixture, suite.DdpComparisonTest, _Processes):
    """DDP with and without a part on another rank."""
