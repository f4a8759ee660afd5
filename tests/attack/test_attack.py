"""A short form of `make attack`, in a process of its own: it leaves its network."""

import json
import subprocess
import sys
from pathlib import Path

DEADLINE_S = 120
COMMAND = Path(__file__).with_name("run.py")
SHORT = "store-requests,store-oversized,listener-garbage,store-replay,listener-replay"


def test_strangers_read_change_and_stop_nothing(tmp_path: Path) -> None:
    found = tmp_path / "found.json"
    done = subprocess.run(
        [sys.executable, str(COMMAND), "--only", SHORT, "--connections", "600", "--json", str(found)],
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    result = json.loads(found.read_text())
    assert [attack["name"] for attack in result["attacks"]] == SHORT.split(",")
    assert result["flood"]["connections"] >= 600
