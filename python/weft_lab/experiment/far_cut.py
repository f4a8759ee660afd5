"""A cut of a site's line during each training of the experiment `far`."""

from __future__ import annotations

import subprocess
import threading
from types import TracebackType

from weft_lab.emulation.network import INTERFACE

__all__ = ["Cut"]

_VANISHES = "protocol all u32 match u32 0 0 action mirred egress redirect dev hole"
"""Nothing is behind that device. Frames that are dropped here would be reported to TCP."""
_CUT = f"""
qdisc add dev {INTERFACE} clsact
filter add dev {INTERFACE} ingress {_VANISHES}
filter add dev {INTERFACE} egress {_VANISHES}
"""
_MENDED = f"qdisc del dev {INTERFACE} clsact\n"


class Cut:
    """Cuts the line of the host on which this process is, for some seconds of the block.

    At the block's end the line is whole in any case.
    """

    def __init__(self, after_s: float, seconds: float) -> None:
        self._after_s, self._seconds = after_s, seconds
        self._over = threading.Event()
        self._failure: subprocess.CalledProcessError | None = None
        self._thread = threading.Thread(target=self._cut_and_mend, daemon=True)

    def __enter__(self) -> Cut:
        """Begins to wait."""
        _run(["ip", "-batch", "-"], "link add hole type veth peer name bottom\nlink set hole up\n")
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Mends the line, if it is cut.

        Raises:
            subprocess.CalledProcessError: The line could not be cut or mended.
        """
        self._over.set()
        self._thread.join()
        if self._failure is not None:
            raise self._failure
        _run(["ip", "link", "delete", "hole"], "")

    def _cut_and_mend(self) -> None:
        if self._over.wait(self._after_s):
            return
        try:
            _run(["tc", "-batch", "-"], _CUT)
            self._over.wait(self._seconds)
            _run(["tc", "-batch", "-"], _MENDED)
        except subprocess.CalledProcessError as error:
            self._failure = error


def _run(command: list[str], text: str) -> None:
    subprocess.run(command, input=text, text=True, check=True)
