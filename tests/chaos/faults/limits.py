"""Descriptors or memory that end while something is set up."""

import random
import resource
import time
from abc import abstractmethod
from typing import Any

from chaos_stage import RankProcess
from chaos_trial import NOTICE_S, Trial

from faults.fault import Fault

_ERRORS = ("ConfigError", "Aborted", "PeerLost", "MemoryError", "UnsupportedError")


class _Limit(Fault):
    """One rank lacks resources: all get an error with the reason, or all continue."""

    share = 8
    what = ""

    def settings(self, source: random.Random) -> dict[str, Any]:
        """A deadline in case that no rank gets an error."""
        return {"timeout_s": source.uniform(4.0, 6.0), "forks": False}

    @abstractmethod
    def left(self, trial: Trial) -> int:
        """How much the victim may still take."""

    def carry_out(self, trial: Trial) -> None:
        """Sets the limit and lets all meet, make groups and memory; awaits errors or the end."""
        trial.start()
        victim = trial.draw.choice(trial.processes)
        victim.order("limit", what=self.what, left=self.left(trial))
        trial.order_meeting(trial.processes, work="set-up")
        began = time.monotonic()
        due = began + trial.plan.timeout_s
        if not trial.await_meeting_or_failure(trial.plan.timeout_s):
            trial.finish(trial.processes)
            trial.close(trial.processes)
            return
        others = trial.others([victim])
        if victim.ended:
            words = victim.last_words()
            trial.outcome.notes.append(f"the limited rank ended: {words}")
            if "panic" in words.lower():
                trial.complain(f"rank {victim.number} panicked: {words}")
        else:
            trial.expect_errors([victim], _ERRORS, due)
        # Only a rank that cannot even reach the meeting is waited for. Rank 0, which serves the
        # store, may be the first to time out.
        trial.expect_errors(others, (*_ERRORS, "Timeout"), due, lambda _: [victim.number, 0])
        waited_for = (
            f"waiting for rank {victim.number}",
            f'address/{victim.number}"',
            "waiting for rank 0, which answers when all ranks have reported",  # its own time ends first
        )
        for process in others:
            failed = process.failed()
            if failed and failed["kind"] == "Timeout" and not any(text in failed["text"] for text in waited_for):
                trial.complain(f"rank {process.number} blames another: {failed['text']}")
        trial.note_spread([process for process in others if not _waits_for_store(process)], NOTICE_S)
        trial.close(trial.processes)


def _waits_for_store(process: RankProcess) -> bool:
    """Whether a rank arrived after rank 0's failure: to it, the store may only be late."""
    failed = process.failed()
    return failed is not None and failed["kind"] == "Timeout" and "waiting for rank 0's store" in failed["text"]


class DescriptorLimit(_Limit):
    """`ulimit -n` is reached."""

    name = "descriptors"
    about = "a rank runs out of descriptors while groups are made: all get an error, within 1 s of each other"
    what = "descriptors"

    def left(self, trial: Trial) -> int:
        """From none to the number that a group needs."""
        return trial.draw.randint(0, 24)


class MemoryLimit(_Limit):
    """`ulimit -v` is reached."""

    name = "memory"
    about = "a rank runs out of address space while groups are made: all get an error, within 1 s of each other"
    what = "memory"

    def left(self, trial: Trial) -> int:
        """From a page to a few hundred MiB."""
        return resource.getpagesize() * int(2 ** trial.draw.uniform(0, 17))
