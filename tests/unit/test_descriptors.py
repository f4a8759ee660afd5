"""Tests that nothing in the source opens a descriptor that may be a standard stream's (0 to 2).

In Rust, code that opens one is in a call of `Descriptor::make` or behind an `AboveStandardStreams`;
in Python, in a `with AboveStandardStreams()`. A file opened only to be read within one call needs
neither: nothing can be written there.
"""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]

RUST_TESTS = re.compile(r"#\[cfg\(test\)\]\s*mod \w+ \{.*", re.DOTALL)
RUST_OPENS = re.compile(
    r"libc::(socket|socketpair|accept4?|pipe2?|eventfd|epoll_create1?|memfd_create|open|openat|dup|timerfd_create"
    r"|inotify_init1?|signalfd|recvmsg|getifaddrs|SYS_pidfd_open)\b"
    r"|(Tcp(Stream|Listener)|Unix(Stream|Listener|Datagram)|UdpSocket)::(connect|bind|pair|connect_timeout)\("
    r"|\.accept\(\)\.map|try_clone(_to_owned)?\(\)|File::(create|create_new|options)\b|OpenOptions::new"
    r"|fs::(write|copy)\(|to_socket_addrs\(\)|ibv_(open_device|create_comp_channel|get_device_list)\)"
)
RUST_PROTECTS = re.compile(r"(Descriptor|Self)::make|AboveStandardStreams::new|opened\(")
RUST_NEAR = 6
"""A call's closure begins at most this many lines above."""
RUST_BY_CALLERS = {
    "crates/transport-shm/src/socket.rs": "recvmsg",  # receive
    "crates/transport-shm/src/process.rs": "SYS_pidfd_open",  # PeerProcess::behind
    "crates/transport-rdma/src/verbs/completion.rs": "ibv_create_comp_channel",  # CompletionQueue::new
    "crates/transport-rdma/src/verbs/device.rs": "ibv_",  # OpenDevice::open, ports
    "crates/transport/src/standard_streams.rs": "open",  # the protection itself
    "crates/transport/src/fork.rs": "try_clone_to_owned",  # above_standard_streams
    "crates/flight/src/directory.rs": "OpenOptions::new",  # FlightRecorder::write
}
"""Functions that are called only from within `Descriptor::make`, or with it open."""
RUST_APART = re.compile(r"tests?[/.]|testing|fuzz|models|bench")

PYTHON_OPENS = re.compile(
    r"(^|\.)(socket\.socket|create_server|create_connection|socketpair|TCPStore|mkstemp|NamedTemporaryFile|memfd_create"
    r"|eventfd|epoll|pipe2?|write_text|write_bytes|get_request|dup|(?!PageServer)\w+Server)$"
)
PYTHON_APART = {"cli", "drawing"}
"""Folders of programs of their own, which no rank of a user's job runs."""
PYTHON_COMMANDS = {
    "diagnosis/findings.py",
    "diagnosis/probe.py",
    "diagnosis/reachability.py",
    "observability/live_status.py",
    "tracing/analyzer.py",
}


def unprotected_in_rust(text: str, by_callers: str | None = None) -> Iterator[str]:
    """Lines that open descriptors without protection."""
    lines = RUST_TESTS.sub("", text).splitlines()
    for index, line in enumerate(lines):
        found = RUST_OPENS.search(line.partition("//")[0])
        known = found and by_callers and by_callers in found[0]
        if found and not known and not RUST_PROTECTS.search("\n".join(lines[max(0, index - RUST_NEAR) : index + 1])):
            yield line.strip()


def unprotected_in_python(text: str) -> Iterator[str]:
    """Calls that open descriptors without protection."""

    def visit(node: ast.AST, protected: bool) -> Iterator[str]:
        if isinstance(node, ast.With):
            protected |= any("AboveStandardStreams" in ast.unparse(item.context_expr) for item in node.items)
        if isinstance(node, ast.Call) and not protected and opens(node):
            yield ast.unparse(node)
        for child in ast.iter_child_nodes(node):
            yield from visit(child, protected)

    return visit(ast.parse(text), False)


def opens(call: ast.Call) -> bool:
    """Whether a call opens something that can be written to."""
    name = ast.unparse(call.func)
    if name == "open" or name.endswith(".open"):
        words = " ".join(ast.unparse(argument) for argument in [*call.args, *(k.value for k in call.keywords)])
        return bool(re.search(r"'[rbt]*[wax+][rbt+]*'|O_WRONLY|O_RDWR", words))
    if name.endswith(".accept"):
        return not call.args
    return bool(PYTHON_OPENS.search(name))


def test_rust_opens_nothing_where_standard_streams_may_be():
    found = {}
    for path in (ROOT / "crates").glob("*/src/**/*.rs"):
        name = str(path.relative_to(ROOT))
        if RUST_APART.search(name):
            continue
        if lines := list(unprotected_in_rust(path.read_text(), RUST_BY_CALLERS.get(name))):
            found[name] = lines
    assert not found


def test_python_opens_nothing_where_standard_streams_may_be():
    found = {}
    package = ROOT / "python" / "weft"
    for path in package.glob("**/*.py"):
        name = path.relative_to(package)
        if name.parts[0] in PYTHON_APART or str(name) in PYTHON_COMMANDS:
            continue
        if calls := list(unprotected_in_python(path.read_text())):
            found[str(name)] = calls
    assert not found


def test_unprotected_calls_are_found():
    bare = "let raw = unsafe { libc::eventfd(0, 0) };"
    assert list(unprotected_in_rust(bare)) == [bare]
    assert not list(unprotected_in_rust(f"Descriptor::make(|| {{\n{bare}\n}})"))
    assert list(unprotected_in_python("path.open('wb')")) == ["path.open('wb')"]
    assert not list(unprotected_in_python("with AboveStandardStreams():\n    file = path.open('wb')"))
    assert not list(unprotected_in_python("path.open('rb')"))
