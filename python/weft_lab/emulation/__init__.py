"""Hosts emulated on one machine by Linux namespaces.

Each host has a network, mount, PID, IPC and UTS namespace of its own. All of them are anonymous:
they exist only as long as a process runs in them. When the launcher ends, also by `kill -9`, the
kernel kills the hosts' first processes (parent death signal), with them all processes on the hosts,
and then removes the namespaces. Nothing has a name in the machine's own namespaces, so there is
nothing to clean up.
"""

from weft_lab.emulation.errors import EmulationError
from weft_lab.emulation.faults import Forgetting, LineLoss
from weft_lab.emulation.launcher import HostLaunch, launch, require_root
from weft_lab.emulation.network import EmulatedNetwork

__all__ = ["EmulationError", "Forgetting", "HostLaunch", "EmulatedNetwork", "LineLoss", "launch", "require_root"]
