"""A recording of the network: the first bytes of every TCP connection."""

import socket
import struct
import threading
from collections import defaultdict

FIRST_BYTES = 4096
_ETH_P_IP = 0x0800
_ETH_P_ALL = 0x0003
_TCP = 6
_SYN = 0x02

Flow = tuple[str, int, str, int]
"""Address and port of the sender, and of the receiver."""


class Recording:
    """Listens at a network interface until it is closed; needs root."""

    def __init__(self, interface: str) -> None:
        """Begins."""
        self._begun: dict[Flow, int] = {}
        self._said: defaultdict[Flow, bytes] = defaultdict(bytes)
        self._socket = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(_ETH_P_ALL))
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 64 << 20)
        self._socket.bind((interface, 0))
        self._socket.settimeout(0.1)
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._listen, daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Ends."""
        self._over.set()
        self._thread.join()
        self._socket.close()

    def said_to(self, host: str, port: int) -> list[bytes]:
        """How every connection to this address began, from the side that made it."""
        return [said for flow, said in list(self._said.items()) if flow[2:] == (host, port) and said]

    def _listen(self) -> None:
        while not self._over.is_set():
            try:
                self._take(self._socket.recv(1 << 17))
            except TimeoutError:
                continue

    def _take(self, frame: bytes) -> None:
        if len(frame) < 54 or struct.unpack_from("!H", frame, 12)[0] != _ETH_P_IP or frame[23] != _TCP:
            return
        packet = frame[14 : 14 + struct.unpack_from("!H", frame, 16)[0]]
        header = (packet[0] & 15) * 4
        source, target, number = struct.unpack_from("!HHI", packet, header)
        flow = (socket.inet_ntoa(packet[12:16]), source, socket.inet_ntoa(packet[16:20]), target)
        if packet[header + 13] & _SYN:
            self._begun[flow] = (number + 1) % 2**32
            self._said[flow] = b""
        elif flow in self._begun:
            said = self._said[flow]
            payload = packet[header + (packet[header + 12] >> 4) * 4 :]
            if len(said) < FIRST_BYTES and (self._begun[flow] + len(said)) % 2**32 == number:
                self._said[flow] = said + payload
