"""Tests of `weft doctor --hosts`: what it measures on each interface, and what it advises."""

import pytest
from emulated_hosts import python, reports, run_hosts

# Host 1 answers. Host 0 asks, as soon as host 1 says that it listens, and lets it end. The
# variables LISTENER and ASKER are WEFT_INTERFACE on each, RATE what host 0 may send over eth1.
DOCTOR = """
import json, os, socket, subprocess, sys, time

rank = int(os.environ["RANK"])
doctor = [sys.executable, "-m", "weft.cli", "doctor"]
for name in ("LISTENER", "ASKER"):
    given = os.environ.pop(name, "")
    if given and rank == (name == "LISTENER"):
        os.environ["WEFT_INTERFACE"] = given
if rank == 1:
    with subprocess.Popen([*doctor, "--listen", "60"], stdout=subprocess.PIPE, text=True) as listener:
        assert listener.stdout.readline().startswith("listening")
        with socket.create_server(("", 29400)) as control:
            for _ in range(2):  # it listens; the other one is done
                control.accept()[0].close()
        listener.terminate()
    print(json.dumps([]))
else:
    if os.environ.get("RATE"):
        bucket = f"root tbf rate {os.environ['RATE']} burst 200kb latency 20ms".split()
        subprocess.run(["tc", "qdisc", "replace", "dev", "eth1", *bucket], check=True)

    def notify():
        for _ in range(300):
            try:
                return socket.create_connection(("host1", 29400), 1).close()
            except OSError:
                time.sleep(0.1)
        raise SystemExit("host 1 does not listen")

    notify()
    try:
        as_json = subprocess.run([*doctor, "--hosts", "host1", "--json"], capture_output=True, text=True)
        as_text = subprocess.run([*doctor, "--hosts", "host1"], capture_output=True, text=True)
    finally:
        notify()
    print(json.dumps({"found": json.loads(as_json.stdout), "status": as_json.returncode, "text": as_text.stdout}))
"""


def ask(*options: str) -> tuple[dict[str, dict], int, str]:
    """Returns host 0's findings by their subject, its exit status, and the same as text."""
    answer, _ = reports(run_hosts("--hosts", "2", *options, command=python(DOCTOR)))
    print(answer["text"])
    return {finding["subject"]: finding for finding in answer["found"]}, answer["status"], answer["text"]


@pytest.fixture(autouse=True)
def use_all_interfaces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("WEFT_INTERFACE", raising=False)
    for variable in ("ASKER", "LISTENER"):
        monkeypatch.setenv(variable, "all")


def test_every_line_is_measured_and_one_leads_nowhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RATE", "100mbit")
    found, status, text = ask("--gbps", "0.4", "--interfaces", "3", "--lose", "1.2@0+100")
    fast, slow, lost = (found[f"eth{number} to host1"] for number in range(3))
    assert (fast["good"], slow["good"], lost["good"]) == (True, True, False)
    # Below the line's rate by its headers, and by other work of the machine.
    assert 0.15 < fast["figures"]["gbit_per_s"] < 0.41, fast
    assert 0.04 < slow["figures"]["gbit_per_s"] < 0.11, slow
    assert lost["figures"]["peer_address"] == "10.77.2.2" and not lost["figures"]["works"]
    assert "does not answer" in lost["text"] or "fails: No route to host" in lost["text"], lost
    assert "WEFT_INTERFACE=eth0,eth1 on every host" in lost["advice"]
    loss = found["loss of a line to host1"]
    assert loss["good"] and loss["figures"]["survived"]
    assert loss["figures"]["interfaces"] == ["eth0", "eth1"]
    assert loss["figures"]["gbit_per_s_together"] > 0.15
    assert status == 1
    assert text.index("NO  eth2 to host1") < text.index("ok  eth0 to host1")


def test_settings_without_which_a_loss_is_not_survived(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ASKER", "")
    monkeypatch.setenv("LISTENER", "")
    found, status, _ = ask("--interfaces", "2")
    loss = found["loss of a line to host1"]
    assert not loss["figures"]["survived"] and "export WEFT_INTERFACE=eth0,eth1" in loss["advice"]
    assert status == 0
    monkeypatch.setenv("ASKER", "all")
    monkeypatch.setenv("WEFT_TCP_RESUME", "never")
    loss = ask("--interfaces", "2")[0]["loss of a line to host1"]
    assert not loss["figures"]["survived"] and "WEFT_TCP_RESUME" in loss["advice"]


def test_only_line_is_not_survived() -> None:
    found, status, _ = ask("--interfaces", "2", "--lose", "1.1@0+100")
    loss = found["loss of a line to host1"]
    assert not loss["figures"]["survived"] and "only eth0 leads there" in loss["text"]
    assert status == 1


def test_interfaces_in_another_order_do_not_lead_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ASKER", "eth0,eth1")
    monkeypatch.setenv("LISTENER", "eth1,eth0")
    found, status, _ = ask("--interfaces", "2")
    for number in range(2):
        line = found[f"eth{number} to host1"]
        assert line["figures"]["left_by"] == f"eth{1 - number}" and "the same order" in line["advice"]
    assert status == 1


def test_unknown_interface_is_named() -> None:
    script = "import sys; from weft.cli import main; sys.exit(main(['doctor', '--hosts', 'host0']) != 1)"
    done = run_hosts("--hosts", "1", command=["env", "WEFT_INTERFACE=eth7", *python(script)])
    assert done.returncode == 0, done.stderr
    assert "eth7" in done.stderr and "eth0 (10.77.0.1)" in done.stderr
