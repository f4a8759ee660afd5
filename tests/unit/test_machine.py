"""Tests of control group limits and settings of TCP, on synthetic file systems."""

from pathlib import Path

from weft import machine

RATES = {"eth0": 1000, "eth1": 25000, "down": -1}


def tree(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def test_version_2_quota_of_any_level_counts(tmp_path: Path) -> None:
    root = tree(
        tmp_path,
        {
            "proc/self/cgroup": "0::/a/b\n",
            "sys/fs/cgroup/a/cpu.max": "150000 100000\n",
            "sys/fs/cgroup/a/b/cpu.max": "max 100000\n",
            "sys/fs/cgroup/a/memory.max": "max\n",
            "sys/fs/cgroup/a/b/memory.max": "1073741824\n",
        },
    )
    assert machine.control_group_cores(root) == 1.5
    assert machine.control_group_memory_bytes(root) == 1 << 30


def test_version_1(tmp_path: Path) -> None:
    root = tree(
        tmp_path,
        {
            "proc/self/cgroup": "5:memory:/job\n4:cpu,cpuacct:/job\n",
            "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us": "-1\n",
            "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us": "100000\n",
            "sys/fs/cgroup/cpu,cpuacct/job/cpu.cfs_quota_us": "50000\n",
            "sys/fs/cgroup/cpu,cpuacct/job/cpu.cfs_period_us": "100000\n",
            "sys/fs/cgroup/memory/job/memory.limit_in_bytes": "9223372036854771712\n",
        },
    )
    assert machine.control_group_cores(root) == 0.5
    assert machine.control_group_memory_bytes(root) is None


def test_container_seeing_only_its_own_control_group(tmp_path: Path) -> None:
    root = tree(
        tmp_path,
        {"proc/self/cgroup": "0::/docker/abc\n", "sys/fs/cgroup/cpu.max": "200000 100000\n"},
    )
    assert machine.control_group_cores(root) == 2.0


def test_machine_without_control_groups(tmp_path: Path) -> None:
    assert machine.control_group_cores(tmp_path) is None
    assert machine.control_group_memory_bytes(tmp_path) is None


def test_settings_of_tcp(tmp_path: Path) -> None:
    root = tree(tmp_path, {"proc/sys/net/ipv4/tcp_available_congestion_control": "reno bbr cubic\n"})
    assert machine.tcp_setting("tcp_available_congestion_control", root) == ["reno", "bbr", "cubic"]
    assert machine.tcp_setting("tcp_congestion_control", root) == []


def test_rates_of_interfaces(tmp_path: Path) -> None:
    root = tree(tmp_path, {f"sys/class/net/{name}/speed": f"{rate}\n" for name, rate in RATES.items()})
    assert machine.interface_rates(root) == {"eth0": 1000, "eth1": 25000}
    assert machine.interface_rates(tmp_path / "none") == {}


def test_this_machine() -> None:
    assert machine.usable_cores() > 0
    assert 0 < machine.memory_bytes("MemAvailable") <= machine.memory_bytes("MemTotal")
