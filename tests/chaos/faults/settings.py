"""Ranks that do not fit together: another version, settings, number of ranks, secret."""

import random
import time
from typing import Any

from chaos_trial import Trial

from faults.fault import Fault

_OPTIONS: tuple[dict[str, Any], ...] = (
    {"wire": "fp16"},
    {"reproducible": True},
    {"algorithm": "all-reduce=ring"},
    {"topology": "0,0,0,0,0,0,0,0"},
)


class OtherSettings(Fault):
    """It shows when they meet, on every rank."""

    name = "settings"
    about = "one rank has another version, setting, number of ranks or secret: all get an error at the meeting"
    share = 8

    def settings(self, source: random.Random) -> dict[str, Any]:
        """A meeting has a short deadline, for ranks that cannot be notified."""
        return {"timeout_s": source.uniform(2.0, 3.0), "forks": False}

    def carry_out(self, trial: Trial) -> None:
        """Gives one rank something else, and awaits errors of all."""
        rank = trial.draw.randrange(trial.plan.ranks)
        what = trial.draw.choice(("version", "option", "ranks", "secret"))
        options: dict[int, dict[str, Any]] = {}
        more: dict[int, dict[str, Any]] = {}
        match what:
            case "version":
                more[rank] = {"version": "9.9.9"}
            case "option":
                options[rank] = trial.draw.choice(_OPTIONS)
                if "topology" in options[rank]:
                    options[rank] = {"topology": ",".join("0" * trial.plan.ranks)}
            case "ranks":
                more[rank] = {"ranks": trial.plan.ranks + 1}
            case _:
                options[rank] = {"secret": "the secret of another job"}
        trial.outcome.notes.append(what)
        trial.start()
        trial.order_meeting(trial.processes, options=options, more=more)
        fails_by_deadline = what in ("ranks", "secret")
        due = time.monotonic() + (trial.plan.timeout_s if fails_by_deadline else 0.0)
        errors = (
            "ConfigError",
            "Desync",
            *(("Timeout", "AuthError", "Aborted", "PeerLost") if fails_by_deadline else ()),
        )
        trial.expect_errors(trial.processes, errors, due)
        trial.afterwards(trial.processes)
