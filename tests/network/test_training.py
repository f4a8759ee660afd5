"""Tests of training between emulated hosts: `weft demo`, and its script under `weft hosts`."""

import json
import subprocess
import sys
from pathlib import Path

from emulated_hosts import printed, python, run_hosts

from weft_lab import demo

SCRIPT = Path(demo.__file__).with_name("train_digits.py")

# Runs the script given as argument, which ends by leaving the process group, and says just before
# that which shared memory of weft is mapped.
RUN_AND_REPORT = """
import json, re, runpy, sys
import torch.distributed as dist

def report_and_leave():
    maps = open("/proc/self/maps").read()
    print(json.dumps(sorted(set(re.findall(r" ([0-9]+) +/memfd:weft", maps)))), flush=True)
    leave()

leave, dist.destroy_process_group = dist.destroy_process_group, report_and_leave
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


def test_the_demo_trains_on_four_hosts(tmp_path: Path) -> None:
    record = tmp_path / "record.json"
    command = [*python(RUN_AND_REPORT), str(SCRIPT), "--backend", "weft", "--epochs", "4", "--out", str(record)]
    done = run_hosts("--hosts", "4", "--gbps", "1", "--share", str(tmp_path), command=command)
    assert done.returncode == 0, done.stderr

    losses = json.loads(record.read_text())["losses"]
    assert sum(losses[-5:]) < 0.5 * sum(losses[:5])

    segments = [json.loads(line) for lines in printed(done).values() for line in lines if line.startswith("[")]
    assert [len(own) for own in segments] == [1, 1, 1, 1]
    assert len(set(map(tuple, segments))) == 4, f"hosts have shared memory in common: {segments}"


def test_command_trains_on_two_hosts(tmp_path: Path) -> None:
    options = ["--hosts", "2", "--ranks", "4", "--gbps", "1", "--epochs", "10", "--out", str(tmp_path)]
    command = [sys.executable, "-m", "weft.cli", "demo", *options]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"

    joined = "hosts: host0 (ranks 0-1), host1 (ranks 2-3); pairs of ranks: 2 over shm, 4 over tcp (not encrypted)"
    assert joined in done.stderr
    assert "training on 4 ranks on 2 emulated hosts at 1 Gbit/s with backends 'weft' and 'gloo'" in done.stdout
    for backend in ("weft", "gloo"):
        losses = json.loads((tmp_path / f"{backend}.json").read_text())["losses"]
        assert sum(losses[-5:]) < 0.5 * sum(losses[:5])


def test_training_continues_without_first_hosts_rank() -> None:
    """With it goes the store at which the ranks have met."""
    script = Path(__file__).parents[2] / "examples" / "surviving_training.py"
    command = [sys.executable, str(script), "--steps", "12", "--pause", "0", "--kill", "0", "--kill-at", "5"]
    done = run_hosts("--hosts", "3", "--grace", "60", command=command)
    lines = printed(done)
    assert any("2 ranks continue after step 5" in line for line in lines[1]), done
    ends = [lines[rank][-1].partition(": ") for rank in (1, 2)]
    assert [end[0] for end in ends] == [f"rank {n + 1} ends as rank {n} of 2 at step 12" for n in (0, 1)]
    assert ends[0][2] == ends[1][2]
