"""Tests of conveniences where files of the machine are unreadable: they warn, and the job
continues.
"""

import os
import warnings
from collections.abc import Callable
from pathlib import Path

import pytest

from weft import config, machine, selection
from weft import profiles as profile
from weft.diagnosis import findings as diagnosis
from weft.diagnosis.host_checks import Finding
from weft.errors import ConfigError


def refuse(*_arguments: object, **_keywords: object) -> None:
    raise PermissionError(1, "Operation not permitted")


def no_home(patch: pytest.MonkeyPatch, _directory: Path) -> None:
    patch.delenv("HOME", raising=False)
    patch.setattr(Path, "home", lambda: (_ for _ in ()).throw(RuntimeError("no home")))


def unreadable_home(patch: pytest.MonkeyPatch, _directory: Path) -> None:
    patch.setattr(Path, "iterdir", refuse)


def damaged_profile(patch: pytest.MonkeyPatch, directory: Path) -> None:
    patch.setenv("HOME", str(directory))
    stored = directory / ".config/weft/profiles"
    stored.mkdir(parents=True)
    (stored / "2-ranks-x.json").write_text("{")


@pytest.mark.parametrize("condition", [no_home, unreadable_home, damaged_profile])
def test_inaccessible_profiles_are_not_used(
    condition: Callable[[pytest.MonkeyPatch, Path], None], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    condition(monkeypatch, tmp_path)
    with pytest.warns(RuntimeWarning, match="profile"):
        assert selection.native_options({"profile": "auto"}, 2)["profiles"] == []
    assert isinstance(diagnosis._profiles(), Finding) if condition is not no_home else True


@pytest.mark.parametrize("home", ["/dev/null", "/nonexistent/weft"])
def test_home_without_profiles_gives_no_warning(home: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    monkeypatch.setenv("HOME", home)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert selection.native_options({"profile": "auto"}, 2)["profiles"] == []


def test_missing_place_of_profiles_is_requested(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    no_home(monkeypatch, tmp_path)
    with pytest.raises(ConfigError, match="XDG_CONFIG_HOME"):
        config.profiles_directory()


def test_all_cores_count_without_affinity(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", refuse)
    monkeypatch.setattr(profile, "_CPU_INFO", Path("/nonexistent"))
    assert machine.affinity_cores() == os.cpu_count()
    assert f"{os.cpu_count()} cores" in profile.hardware()
    assert machine.usable_cores() > 0


def test_flight_records_need_a_directory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.gettempdir", refuse)
    with pytest.warns(RuntimeWarning, match="no flight records"):
        assert config.flight_directory(config.load({"flight_dir": "auto"}, {})) is None


def test_doctor_names_unreadable_files(monkeypatch: pytest.MonkeyPatch) -> None:
    for look in (
        "_cores",
        "_memory",
        "_profiles",
        "_torch",
        "_congestion_control",
        "_broken_connections",
        "graphics_processors",
    ):
        monkeypatch.setattr(diagnosis, look, refuse)
    monkeypatch.setattr(diagnosis, "_probed", lambda _: (True, ""))
    found = {finding.subject: finding.text for finding in diagnosis.findings()}
    assert found["cores"] == found["profiles"] == "unknown: [Errno 1] Operation not permitted"
