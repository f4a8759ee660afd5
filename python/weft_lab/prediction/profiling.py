"""Profiling of a script or a network, in a separate process."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from weft import config
from weft.errors import ArgumentError
from weft.output import files
from weft.processes.ports import free_ports
from weft_lab.prediction.profile import TrainingProfile

__all__ = ["profile_model", "profile_script"]


def profile_script(script: Path, arguments: Sequence[str], steps: int, timeout_s: float) -> TrainingProfile:
    """Runs a script until this many of its steps were measured.

    Its output goes to standard error.

    Raises:
        weft.ArgumentError: There is no such script, it fails, trains too few steps, or has not
            trained them in time.
    """
    if not script.is_file():
        raise ArgumentError(f"there is no script {script}")
    return _profile({"script": str(script), "arguments": list(arguments)}, steps, timeout_s, {})


def profile_model(
    model: str, samples: int | None, steps: int, timeout_s: float, environment: Mapping[str, str] | None = None
) -> TrainingProfile:
    """Trains a network of `weft experiment` for this many steps, with batches of this many samples.

    Raises:
        weft.ArgumentError: It fails, or has not ended in time.
    """
    return _profile({"model": model, "samples": samples}, steps, timeout_s, environment or {})


def _profile(what: dict[str, object], steps: int, timeout_s: float, environment: Mapping[str, str]) -> TrainingProfile:
    name = what.get("model") or what["script"]
    alone = {"RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1", "GROUP_RANK": "0"}
    place = {**alone, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_ports(1)[0])}
    with tempfile.TemporaryDirectory(prefix="weft-predict-") as directory:
        spec, output = Path(directory, "spec.json"), Path(directory, "profile.json")
        empty: dict[str, object] = {"script": None, "arguments": [], "model": None, "samples": None}
        files.write(spec, json.dumps({**empty, **what, "steps": steps, "output": str(output)}))
        try:
            done = subprocess.run(
                [sys.executable, "-m", "weft_lab.prediction.program", str(spec)],
                env={**config.environment(), **place, **environment},
                stdout=sys.stderr.fileno(),
                check=False,
                timeout=timeout_s,
            )
        except subprocess.TimeoutExpired:
            raise ArgumentError(
                f"{name} has not trained {steps} steps within {timeout_s:g} s: give it more time by --timeout, "
                "or ask for fewer --steps"
            ) from None
        if done.returncode != 0 or not output.exists():
            raise ArgumentError(f"{name} could not be profiled: status {done.returncode}; its own message is above")
        return TrainingProfile.load(output)
