"""A cut of a site's line during each training of the experiment `far`."""

from __future__ import annotations

import subprocess
import threading
from types import TracebackType

from weft_lab.emulation.network import INTERFACE

__all__ = ["Cut"]

_CUT = f"""
qdisc add dev {INTERFACE} clsact
filter add dev {INTERFACE} ingress protocol all u32 match u32 0 0 action drop
filter add dev {INTERFACE} egress protocol all u32 match u32 0 0 action mirred egress redirect dev hole
"""
"""What is sent vanishes without an error, as on a line; a drop here would be reported to TCP."""
_MENDED = f"qdisc del dev {INTERFACE} clsact\n"


class Cut:
    """Cuts the line of the host on which this process is, for some seconds of the block.

    At the block's end the line is whole in any case.
    """

    def __init__(self, after_s: float, seconds: float) -> None:
        self._after_s, self._seconds = after_s, seconds
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._cut_and_mend, daemon=True)

    def __enter__(self) -> Cut:
        """Begins to wait."""
        _run(["ip", "-batch", "-"], "link add hole type veth peer name bottom\nlink set hole up\n")
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Mends the line, if it is cut."""
        self._over.set()
        self._thread.join()
        _run(["ip", "link", "delete", "hole"], "")

    def _cut_and_mend(self) -> None:
        if not self._over.wait(self._after_s):
            _run(["tc", "-batch", "-"], _CUT)
            self._over.wait(self._seconds)
            _run(["tc", "-batch", "-"], _MENDED)


def _run(command: list[str], text: str) -> None:
    subprocess.run(command, input=text, text=True, check=True)
