"""Tests of encryption between emulated hosts: the view of an observer of the network."""

import pytest
from emulated_hosts import python, reports, run_hosts

# Every rank reads all packets of its host while it trains, and looks for its gradient among them.
TRAIN_UNDER_OBSERVATION = """
import json, socket, threading
import torch
import torch.distributed as dist
import weft.torch

packets = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
SO_RCVBUFFORCE = 33  # beyond what the system allows: nothing is lost while the observer does not run
packets.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, 1 << 24)
seen = bytearray()
over = threading.Event()

def observe():
    packets.settimeout(0.1)
    while True:
        try:
            seen.extend(packets.recv(1 << 16))
        except TimeoutError:  # nothing is left to read
            if over.is_set():
                return
observer = threading.Thread(target=observe)
observer.start()
dist.init_process_group("weft")
net = torch.nn.Linear(512, 512, bias=False)
torch.nn.init.constant_(net.weight, 0.5)
model = torch.nn.parallel.DistributedDataParallel(net)
optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
for _ in range(3):
    optimizer.zero_grad()
    model(torch.full((1, 512), 1234.5)).sum().backward()
    optimizer.step()
description = weft.torch.describe()
dist.destroy_process_group()
over.set()
observer.join()
print(json.dumps({
    "packets": len(seen),
    "gradient": torch.full((4,), 1234.5).numpy().tobytes() in seen,
    "result": net.weight.double().sum().item(),
    "description": description,
}))
"""


@pytest.mark.parametrize("cipher", ["aes-gcm", "chacha20-poly1305", "0"])
def test_network_capture_shows_only_unencrypted_gradients(cipher: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WEFT_ENCRYPT", cipher)
    found = reports(run_hosts("--hosts", "2", command=python(TRAIN_UNDER_OBSERVATION)))
    expected = 512 * 512 * (0.5 - 3 * 0.01 * 1234.5)
    for report in found:
        assert report["packets"] > 512 * 512 * 4, "the observer has read the network"
        assert report["gradient"] == (cipher == "0")
        assert report["result"] == pytest.approx(expected, rel=1e-4)
        assert ("not encrypted" if cipher == "0" else cipher) in report["description"]


MEET = """
import json
import weft

try:
    weft.init(timeout=20, encrypt=RANK_0 if weft.config.place().rank == 0 else RANK_1)
    outcome = "met"
except weft.ConfigError as error:
    outcome = str(error)
print(json.dumps({"outcome": outcome}))
"""


def test_differing_encryption_settings_are_reported_to_both() -> None:
    script = MEET.replace("RANK_0", "True").replace("RANK_1", "False")
    first, second = (report["outcome"] for report in reports(run_hosts("--hosts", "2", command=python(script))))
    assert "rank 1 was given the option encrypt=0, this rank encrypt=1: it must be the same everywhere" in first
    assert "rank 0 was given the option encrypt=1, this rank encrypt=0: it must be the same everywhere" in second
