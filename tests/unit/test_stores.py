"""Tests of the ranks' meeting place: the job's secret, and strangers."""

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

import weft
from weft import config
from weft.bootstrap import stores
from weft.processes.ports import free_ports

SECRET = "the secret of this job, and no other"
IDLE_CONNECTIONS = """
import resource, socket, sys
resource.setrlimit(resource.RLIMIT_NOFILE, [resource.getrlimit(resource.RLIMIT_NOFILE)[1]] * 2)
connections = [socket.create_connection(("127.0.0.1", int(sys.argv[1])), 30) for _ in range(1500)]
print("connected", flush=True)
sys.stdin.read()
"""
FEW_DESCRIPTORS = """
import os, resource, sys
import weft
from weft.world import init
free = os.dup(0)
os.close(free)
resource.setrlimit(resource.RLIMIT_NOFILE, (free + int(sys.argv[1]), resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
try:
    init(0, 2, address=sys.argv[2], timeout=2)
except weft.Error as error:
    print(type(error).__name__, error)
"""


def free_port() -> int:
    return free_ports(1)[0]


def meet(rank: int, address: str, **options):
    with weft.init(rank, 2, address=address, transport="loopback", timeout=20, **options) as group:
        return group.all_reduce(np.full(3, rank + 1.0)).tolist()


def meet_with(*options: dict[str, str]) -> list:
    address = f"127.0.0.1:{free_port()}"
    with ThreadPoolExecutor(2) as ranks:
        return [result.result(30) for result in [ranks.submit(meet, rank, address, **options[rank]) for rank in (0, 1)]]


def own_store(port: int, *, serve: bool, secret: bytes | None) -> weft.TcpStore:
    return weft.TcpStore("127.0.0.1", port, serve, 20.0, weft.Cancellation(), secret)


def count_of_own(what: str) -> int:
    return len(list(Path("/proc/self", what).iterdir()))


def secret_file(tmp_path: Path, mode: int, text: str = SECRET + "\n") -> Path:
    path = tmp_path / "secret"
    path.write_text(text)
    path.chmod(mode)
    return path


def test_ranks_with_the_secret_meet(tmp_path: Path) -> None:
    path = str(secret_file(tmp_path, 0o600))
    assert meet_with({"secret": SECRET}, {"secret_file": path}) == [[3.0] * 3] * 2


@pytest.mark.parametrize("other", [None, b"the secret of another job"])
def test_other_secret_is_reported_soon(other: bytes | None) -> None:
    port = free_port()
    served = own_store(port, serve=True, secret=SECRET.encode())
    served.set("key", b"value")
    with pytest.raises(weft.AuthError, match="WEFT_SECRET must be the same on all ranks") as caught:
        own_store(port, serve=False, secret=other)
    assert SECRET not in str(caught.value)
    assert own_store(port, serve=False, secret=SECRET.encode()).get("key", 5) == b"value"


def test_a_network_needs_a_secret_or_a_word() -> None:
    for rank in (0, 1):
        with pytest.raises(weft.ConfigError, match=r"set WEFT_SECRET .* WEFT_INSECURE=1"):
            meet(rank, "192.0.2.1:29500")
    with pytest.raises(weft.ConfigError, match="Choose an address of this host as MASTER_ADDR"):
        meet(0, "192.0.2.1:29500", insecure=True)


def test_meeting_without_secret_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    address = f"0.0.0.0:{free_port()}"
    with ThreadPoolExecutor(2) as ranks:
        results = [ranks.submit(meet, rank, address, insecure=True) for rank in (0, 1)]
        assert [result.result(30) for result in results] == [[3.0] * 3] * 2
    assert "without a secret (WEFT_INSECURE)" in caplog.text


def test_a_key_is_set_once() -> None:
    store = own_store(free_port(), serve=True, secret=None)
    store.set("key", b"1")
    store.set("key", b"1")
    with pytest.raises(weft.ConfigError, match="set already"):
        store.set("key", b"2")


class CountingStore:
    """A store like torch's that counts its requests."""

    def __init__(self, *, extended: bool) -> None:
        self._values: dict[str, bytes] = {}
        self._extended = extended
        self.got: list[list[str]] = []

    def set(self, key: str, value: bytes) -> None:
        self._values[key] = value

    def check(self, keys: list[str]) -> bool:
        return all(key in self._values for key in keys)

    def get(self, key: str) -> bytes:
        self.got.append([key])
        return self._values[key]

    def has_extended_api(self) -> bool:
        return self._extended

    def multi_get(self, keys: list[str]) -> list[bytes]:
        assert self._extended
        self.got.append(keys)
        return [self._values[key] for key in keys]


@pytest.mark.parametrize("extended", [True, False])
def test_only_rank_0_reads_all_values_together(*, extended: bool) -> None:
    store = CountingStore(extended=extended)

    def meet_at_store(rank: int) -> int:
        with weft.init(rank, 3, store=store, transport="loopback", timeout=20) as group:
            return group.size

    with ThreadPoolExecutor(3) as ranks:
        assert list(ranks.map(meet_at_store, range(3))) == [3, 3, 3]
    # On two topics, addresses and hosts: two answers for ranks 1 and 2, and the first report of
    # rank 0.
    assert sum(keys[0].endswith("/all") for keys in store.got) == 4
    read = [keys for keys in store.got if not keys[0].endswith("/all")]
    assert sorted(map(len, read)) == ([1, 1, 3, 3] if extended else [1] * 8)


def test_the_secret_is_not_shown() -> None:
    settings = config.load({"secret": SECRET}, {})
    assert config.job_secret(settings) == SECRET.encode()
    assert SECRET not in repr(settings)
    for variables, arguments in [({"WEFT_SECRET": "too short"}, {}), ({}, {"secret": "too short"})]:
        with pytest.raises(weft.ConfigError, match="WEFT_SECRET is not allowed: expected a text of 16") as caught:
            config.load(arguments, variables)
        assert "too short" not in str(caught.value)


def test_a_secret_file_is_its_owners(tmp_path: Path) -> None:
    def read(path: Path) -> bytes | None:
        return config.job_secret(config.load({"secret_file": str(path)}, {}))

    assert read(secret_file(tmp_path, 0o600)) == SECRET.encode()
    for mode in (0o640, 0o604, 0o620):
        with pytest.raises(weft.ConfigError, match=r"others can read or write .*chmod 600"):
            read(secret_file(tmp_path, mode))
    with pytest.raises(weft.ConfigError, match="holds no secret: 3 bytes"):
        read(secret_file(tmp_path, 0o600, "abc"))
    with pytest.raises(weft.ConfigError, match="cannot read"):
        read(tmp_path / "missing")


def test_each_launched_job_has_its_own_secret() -> None:
    one, two = (config.with_secret({"A": "1"}) for _ in range(2))
    assert len(one["WEFT_SECRET"]) == 64 and one["WEFT_SECRET"] != two["WEFT_SECRET"]
    given = {"WEFT_SECRET_FILE": "/run/secret"}
    assert config.with_secret(given) == given


def test_certificates_replace_secret_and_need_all_files() -> None:
    files = {"tls_cert": "a.pem", "tls_key": "a.key", "tls_ca": "ca.pem"}
    variables = {f"WEFT_{name.upper()}": file for name, file in files.items()}
    assert config.tls_files(config.load({}, {})) is None
    assert config.tls_files(config.load({}, variables)) == ("a.pem", "a.key", "ca.pem")
    assert config.tls_files(config.load({"tls_key": Path("b.key")}, variables)) == ("a.pem", "b.key", "ca.pem")
    with pytest.raises(weft.ConfigError, match=r"tls_cert without tls_key and tls_ca: set all"):
        config.tls_files(config.load({"tls_cert": "a.pem"}, {}))
    for secret in ({"secret": SECRET}, {"secret_file": "secret"}):
        with pytest.raises(weft.ConfigError, match="and tls_cert are both set"):
            config.tls_files(config.load(files | secret, {}))
    assert config.with_secret(variables) == variables


def test_a_network_needs_readable_certificates(tmp_path: Path) -> None:
    missing = str(tmp_path / "missing.pem")
    for rank in (0, 1):
        with pytest.raises(weft.ConfigError, match=f"tls_cert: cannot read {missing}"):
            meet(rank, "192.0.2.1:29500", tls_cert=missing, tls_key=missing, tls_ca=missing)


@pytest.mark.parametrize("secret", [None, SECRET.encode()])
def test_idle_strangers_exhaust_nothing(secret: bytes | None) -> None:
    port = free_port()
    served = own_store(port, serve=True, secret=secret)
    threads, descriptors = count_of_own("task"), count_of_own("fd")
    command = [sys.executable, "-c", IDLE_CONNECTIONS, str(port)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as stranger:
        assert stranger.stdout is not None
        assert stranger.stdout.readline() == "connected\n"
        served.set("key", b"value")
        assert own_store(port, serve=False, secret=secret).get("key", 5) == b"value"
        assert count_of_own("task") <= threads + 2
        assert count_of_own("fd") <= descriptors + 270
        stranger.communicate("")


def test_ranks_meet_at_the_store_of_torch() -> None:
    torch = pytest.importorskip("torch.distributed")
    served = torch.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    for store in (served, torch.PrefixStore("a", torch.PrefixStore("b", served))):
        assert stores.rendezvous(store) == f"127.0.0.1:{served.port}"
    for store in (torch.HashStore(), weft.MemoryStore(), None):
        assert stores.rendezvous(store) is None


@pytest.mark.parametrize("left", range(8, 18))
def test_rank_0_without_descriptors_reports_the_limit(left: int) -> None:
    """Never that its own store does not answer."""
    command = [sys.executable, "-c", FEW_DESCRIPTORS, str(left), f"127.0.0.1:{free_port()}"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=30)
    text = done.stdout + done.stderr
    assert "does not answer" not in text
    assert "Too many open files" in text or "rank 1" in text
