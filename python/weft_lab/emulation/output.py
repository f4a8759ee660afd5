"""Forwarding of the ranks' output line by line, with host name and rank as prefix."""

import os
import re

_LINE_END = re.compile(rb"\r\n|\r|\n")
_READ_BYTES = 65536


class PrefixedOutput:
    """Reads one stream of one rank and writes its lines to a descriptor.

    A carriage return ends a line too, so that progress lines are shown immediately.
    """

    def __init__(self, source: int, target: int, prefix: str) -> None:
        self.source = source
        self._target = target
        self._prefix = prefix.encode()
        self._partial = b""

    def pass_on(self) -> bool:
        """Writes the complete lines that can be read now; False at the end of the stream."""
        data = os.read(self.source, _READ_BYTES)
        if not data:
            self._write([self._partial + b"\n"] if self._partial else [])
            self._partial = b""
            return False
        lines, self._partial = split_lines(self._partial + data)
        self._write(lines)
        return True

    def _write(self, lines: list[bytes]) -> None:
        data = b"".join(self._prefix + line for line in lines)
        while data:
            data = data[os.write(self._target, data) :]


def split_lines(data: bytes) -> tuple[list[bytes], bytes]:
    """The complete lines with their ends, and what follows the last one."""
    lines: list[bytes] = []
    begin = 0
    for match in _LINE_END.finditer(data):
        # A carriage return at the very end may be the first half of "\r\n".
        if match.group() == b"\r" and match.end() == len(data):
            break
        lines.append(data[begin : match.end()])
        begin = match.end()
    return lines, data[begin:]
