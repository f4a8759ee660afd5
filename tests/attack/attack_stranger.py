"""The stranger's process: it attacks when it is ordered to, and reports the outcome."""

import os
import signal
import socket
import threading
import time
from dataclasses import asdict

from attacks import ATTACKS, Target, flood
from chaos_member import ChaosMember, Orders, say

from weft.processes.local_ranks import die_with_parent


def live(member: ChaosMember, report: int, orders: int) -> None:  # noqa: ARG001
    """Obeys until it is ordered to close. It has no secret."""
    os.environ.pop("WEFT_SECRET", None)
    sink = _sink()
    received = Orders(orders)
    while (order := received.next()) is not None and order["order"] != "close":
        began = time.monotonic()
        if order["order"] == "attack":
            said = asdict(ATTACKS[order["name"]](_target(order["target"])))
        else:
            target = _target(order["target"])
            addresses = [sink] if order["at_sink"] else [*target.listeners, target.store]
            said = {"made": flood(addresses, target.recorded_listeners, order["rate"], order["until"])}
        say(report, event="done", number=order["number"], began=began, ended=time.monotonic(), **said)


def _target(said: dict) -> Target:
    """From JSON, in which bytes are in hexadecimal."""
    return Target(
        store=tuple(said["store"]),
        listeners=[(host, port) for host, port in said["listeners"]],
        recorded_store=[bytes.fromhex(text) for text in said["recorded_store"]],
        recorded_listeners=[bytes.fromhex(text) for text in said["recorded_listeners"]],
    )


def _sink() -> tuple[str, int]:
    """A listener of the stranger's own, in its own process: for floods that hit no rank."""
    listener = socket.create_server(("127.0.0.1", 0), backlog=1024)
    if os.fork() == 0:
        die_with_parent()
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        while True:
            connection, _ = listener.accept()
            threading.Timer(0.1, connection.close).start()
    address = listener.getsockname()
    listener.close()
    return address
