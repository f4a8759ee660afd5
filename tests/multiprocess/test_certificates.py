"""Jobs whose ranks have certificates of a CA in place of a secret."""

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from team import free_port

import weft

pytestmark = pytest.mark.system_package("openssl")

TIMEOUT_S = 6.0
"""The timeout for a rank that never comes; every one of them has started long before."""
NEW_KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes")
MEMBER = """
import sys
import numpy as np
import weft

with weft.init(timeout=float(sys.argv[1])) as group:
    numbers = np.full(1000, group.rank + 1.0)
    group.all_reduce(numbers)
    print(numbers[0], numbers[-1])
    group.barrier()
"""
SERVER = """
import sys
import weft

store = weft.TcpStore("127.0.0.1", int(sys.argv[1]), True, 20.0, weft.Cancellation(), tls=sys.argv[2:])
print("serves", flush=True)
sys.stdin.read()
"""


class Authority:
    """A CA, and the certificates that it has signed, in a folder."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self._folder = folder
        self._openssl("req", "-x509", *NEW_KEY, "-days", "1", "-subj", "/CN=CA", "-keyout", "ca.key", "-out", "ca.pem")

    def settings(self, name: str, names: str = "DNS:node7") -> dict[str, str]:
        """The environment of a rank with a new certificate for these names."""
        subject = ("-subj", f"/CN={name}", "-addext", f"subjectAltName={names}")
        self._openssl("req", *NEW_KEY, *subject, "-keyout", f"{name}.key", "-out", f"{name}.csr")
        signing = ("-CA", "ca.pem", "-CAkey", "ca.key", "-copy_extensions", "copy", "-days", "1")
        self._openssl("x509", "-req", "-in", f"{name}.csr", *signing, "-out", f"{name}.pem")
        files = {"CERT": f"{name}.pem", "KEY": f"{name}.key", "CA": "ca.pem"}
        return {f"WEFT_TLS_{what}": str(self._folder / file) for what, file in files.items()}

    def _openssl(self, *arguments: str) -> None:
        subprocess.run(["openssl", *arguments], cwd=self._folder, check=True, capture_output=True, timeout=30)


@pytest.fixture
def ca(tmp_path: Path) -> Authority:
    return Authority(tmp_path / "ca")


def meet(*settings: dict[str, str], timeout_s: float = 20) -> list[tuple[int, str]]:
    """The exit status and the output of ranks with these settings. They wait for each other."""
    place = {"WORLD_SIZE": str(len(settings)), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("WEFT_")}
    started = [
        subprocess.Popen(
            [sys.executable, "-c", MEMBER, str(timeout_s)],
            env=inherited | place | {"RANK": str(rank)} | own,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for rank, own in enumerate(settings)
    ]
    try:
        outputs = [process.communicate(timeout=60)[0] for process in started]
    finally:
        for process in started:
            process.kill()
    return [(process.returncode, output) for process, output in zip(started, outputs, strict=True)]


def test_ranks_with_certificates_of_one_ca_meet(ca: Authority) -> None:
    outcomes = meet(ca.settings("rank0", "IP:127.0.0.1"), ca.settings("rank1"))
    assert outcomes == [(0, "3.0 3.0\n")] * 2


def test_certificate_of_another_ca_is_reported(ca: Authority, tmp_path: Path) -> None:
    trusted = {"WEFT_TLS_CA": ca.settings("rank0", "IP:127.0.0.1")["WEFT_TLS_CA"]}
    stranger = Authority(tmp_path / "other").settings("rank1") | trusted
    (_, rank0), (status, rank1) = meet(ca.settings("rank0", "IP:127.0.0.1"), stranger, timeout_s=TIMEOUT_S)
    assert status == 1
    assert f"ConfigError: tls_cert: {stranger['WEFT_TLS_CERT']} is not signed by a CA of tls_ca" in rank1
    assert "waiting for rank 1" in rank0


def test_certificate_for_another_name_is_reported(ca: Authority) -> None:
    own = (ca.settings("rank0", "DNS:node0,IP:10.0.0.1"), ca.settings("rank1"))
    (first, rank0), (second, _) = meet(*own, timeout_s=TIMEOUT_S)
    assert (first, second) == (1, 1)
    assert "AuthError: the process that listens at 127.0.0.1:" in rank0
    assert "is for node0, 10.0.0.1 (subjectAltName), not for 127.0.0.1" in rank0


def test_certificate_may_be_for_a_name_of_several_hosts(ca: Authority) -> None:
    """As of the lobby of an elastic training, which is called at one of their addresses."""
    files = list(ca.settings("member", "DNS:training").values())
    place = ("127.0.0.1", free_port())
    server = weft.TcpStore(*place, True, 5.0, weft.Cancellation(), tls=files, tls_name="training")
    server.set("key", b"value")
    client = weft.TcpStore(*place, False, 5.0, weft.Cancellation(), tls=files, tls_name="training")
    assert client.get("key", 5.0) == b"value"
    for name in (None, "other"):
        with pytest.raises(weft.AuthError, match="certificate"):
            weft.TcpStore(*place, False, 5.0, weft.Cancellation(), tls=files, tls_name=name)


def test_nothing_older_than_tls_1_3_is_spoken(ca: Authority) -> None:
    files = list(ca.settings("rank0", "IP:127.0.0.1").values())
    cert, key, authority = files
    port = free_port()
    server = subprocess.Popen(
        [sys.executable, "-c", SERVER, str(port), *files], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        assert server.stdout is not None
        assert server.stdout.readline() == "serves\n"
        call = [
            "openssl",
            "s_client",
            "-connect",
            f"127.0.0.1:{port}",
            "-CAfile",
            authority,
            "-cert",
            cert,
            "-key",
            key,
        ]
        call += ["-verify_return_error", "-verify_ip", "127.0.0.1", "-alpn", "weft-store/2"]
        said = [
            subprocess.run([*call, version], input="", capture_output=True, text=True, timeout=30).stdout
            for version in ("-tls1_2", "-tls1_3")
        ]
        assert "Cipher is (NONE)" in said[0]
        assert "TLSv1.3, Cipher is TLS_" in said[1]
        assert "Verification: OK" in said[1]
        with socket.create_connection(("127.0.0.1", port), timeout=20) as plain:
            plain.sendall(b"GET / HTTP/1.1\r\n\r\n")
            assert plain.recv(1) == b""
    finally:
        server.kill()
        server.wait()
