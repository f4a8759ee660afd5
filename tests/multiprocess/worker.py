"""Main loop of a worker process: commands from a pipe until it closes."""

import ctypes
import faulthandler
import importlib
import signal
import sys
import traceback
from multiprocessing.connection import Connection
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from team import TaskFailure

import weft

_PR_SET_PDEATHSIG = 1


class Worker:
    def __init__(self):
        self.group = None

    def join(self, rank, size, transport, address):
        self.group = weft.init(rank, size, address=address, transport=transport, timeout=30)

    def run(self, module, name, arguments):
        task = getattr(importlib.import_module(module), name)
        return task(self.group, *arguments)

    def answer(self, verb, arguments):
        try:
            return getattr(self, verb)(*arguments)
        except BaseException as error:
            return TaskFailure(type(error).__name__, str(error), traceback.format_exc())


def main():
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    faulthandler.register(signal.SIGUSR1, all_threads=True)
    pipe = Connection(int(sys.argv[1]))
    worker = Worker()
    while True:
        try:
            verb, arguments = pipe.recv()
        except EOFError:
            break
        pipe.send(worker.answer(verb, arguments))
    if worker.group is not None:
        worker.group.close()


if __name__ == "__main__":
    main()
