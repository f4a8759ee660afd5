"""Values of settings: the only place where weft reads the environment.

`weft.settings` declares the settings.
"""

import os
import secrets
import tempfile
import types
import warnings
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from weft import launchers, parsing
from weft.errors import ConfigError
from weft.settings import PREFIX, SETTINGS, Options, Setting

__all__ = [
    "Settings",
    "accept",
    "environment",
    "flight_directory",
    "forget_launchers_job",
    "job_identity",
    "job_secret",
    "load",
    "load_what_is_good",
    "peers_directory",
    "place",
    "profiles_directory",
    "rendezvous_host",
    "set_launch_variables",
    "tls_files",
    "with_secret",
]


_launcher_names_job = True
"""Whether this process belongs to the job of its launcher, and to no other."""


class Settings(types.SimpleNamespace):
    """The values of all settings, by their names. See docs/reference/configuration.md."""

    def compared(self) -> dict[str, str]:
        """The values, as text, that ranks compare when they meet."""
        return {setting.name: str(getattr(self, setting.name)) for setting in SETTINGS if setting.compared == "meeting"}

    def of(self, options: type) -> dict[str, Any]:
        """The values of `EndpointOptions` or `GroupOptions`."""
        return {name: getattr(self, name) for name in options.__annotations__}


def load(arguments: Mapping[str, Any] | None = None, variables: Mapping[str, str] | None = None) -> Settings:
    """The settings: an argument that is not None, else the variable, else the default."""
    arguments = accept(Options, arguments or {})
    variables = os.environ if variables is None else variables
    _warn_of_unknown(variables)
    return Settings(**{setting.name: _value(setting, arguments, variables) for setting in SETTINGS})


def load_what_is_good(arguments: Mapping[str, Any]) -> Settings:
    """The settings, with the default in place of a value that is not allowed.

    For a rank that has failed and has something left to do.
    """

    def value(setting: Setting) -> Any:
        try:
            given = {name: value for name, value in arguments.items() if name == setting.name}
            return _value(setting, accept(Options, given), os.environ)
        except ConfigError:
            return setting.default

    return Settings(**{setting.name: value(setting) for setting in SETTINGS})


def accept(options: type, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Checks and parses the arguments that are not None.

    `options` is the `TypedDict` that declares them.
    """
    for name in arguments:
        if name not in options.__annotations__:
            raise TypeError(f"unexpected keyword argument {name!r}: {_hint(name, options.__annotations__)}")
    given = {name: value for name, value in arguments.items() if value is not None}
    return {setting.name: setting.accept(given[setting.name]) for setting in SETTINGS if setting.name in given}


def place(
    rank: int | None = None,
    world_size: int | None = None,
    address: str | None = None,
    *,
    meets: bool = True,
) -> launchers.JobPosition:
    """This process's place in the job: the arguments, else the launcher's variables.

    See `launchers.place`.
    """
    return launchers.place(os.environ, rank, world_size, address, meets=meets)


def job_identity(settings: Settings, world_size: int) -> list[tuple[str, str]]:
    """The name of this process's job, set by the user or else by launchers.

    See `launchers.job_identity`.
    """
    if settings.job_id is not None:
        return [("WEFT_JOB_ID", settings.job_id)]
    return launchers.job_identity(os.environ, world_size) if _launcher_names_job else []


def forget_launchers_job() -> None:
    """Makes what a launcher calls this process's job not count from now on.

    For a process of a training that takes in processes of other launchers' jobs.
    """
    global _launcher_names_job
    _launcher_names_job = False


def set_launch_variables() -> None:
    """Sets RANK, WORLD_SIZE and others for torch, unless torchrun or the user has.

    See `launchers.torch_variables`.
    """
    for name, value in launchers.torch_variables(os.environ).items():
        os.environ.setdefault(name, value)


def rendezvous_host() -> str:
    """The host where the ranks meet, as launchers of torch have set it; this host by default."""
    return os.environ.get("MASTER_ADDR", "127.0.0.1")


def hardware_queues() -> int | None:
    """The most hardware queues of a CUDA device, if CUDA's own variable limits them."""
    limit = os.environ.get("CUDA_DEVICE_MAX_CONNECTIONS", "")
    return int(limit) if limit.isdecimal() else None


def profiles_directory() -> Path:
    """The directory in which `weft tune` stores profiles.

    Raises:
        ConfigError: This process's user has no home directory.
    """
    return _users_directory("XDG_CONFIG_HOME", ".config") / "weft" / "profiles"


def _users_directory(variable: str, below_home: str) -> Path:
    base = os.environ.get(variable)
    if base:
        return Path(base)
    try:
        return Path.home() / below_home
    except RuntimeError:
        raise ConfigError(
            f"HOME is not set, and user {os.getuid()} is not known here, so there is no home directory: set HOME or "
            f"{variable} to a directory"
        ) from None


def flight_directory(settings: Settings) -> Path | None:
    """The directory for flight records; None if none are written."""
    try:
        match settings.flight_dir:
            case "none":
                return None
            case "auto":
                return Path(tempfile.gettempdir())
            case path:
                return Path(path).absolute()
    except OSError as error:  # no directory for temporary files, or no working directory
        warnings.warn(
            f"no flight records are written: {error.strerror}. Set WEFT_FLIGHT_DIR to a directory, or to none",
            RuntimeWarning,
            stacklevel=2,
        )
        return None


def job_secret(settings: Settings) -> bytes | None:
    """The job's secret; None if it has none.

    Raises:
        ConfigError: Its file cannot be read, others can read it, or it holds no secret.
    """
    if settings.secret is not None:
        return bytes(settings.secret.content)
    if settings.secret_file is None:
        return None
    path = Path(settings.secret_file)
    try:
        with path.open("rb") as file:
            mode = os.fstat(file.fileno()).st_mode
            content = file.read(parsing.SECRET_BYTES_MAX + 2)
    except OSError as error:
        raise ConfigError(f"secret_file: cannot read {path}: {error.strerror}") from None
    if mode & 0o077:
        raise ConfigError(f"secret_file: others can read or write {path}: run `chmod 600 {path}`")
    try:
        return parsing.parse_secret(content.decode().strip()).content
    except ValueError as error:
        raise ConfigError(f"secret_file: {path} holds no secret: {error}") from None


def tls_files(settings: Settings) -> tuple[str, str, str] | None:
    """The files of certificate, key and CA; None if the job has no certificates.

    Raises:
        ConfigError: Some of them are set and others are not, or a secret is set as well.
    """
    names = ("tls_cert", "tls_key", "tls_ca")
    files = {name: getattr(settings, name) for name in names}
    missing = [name for name, file in files.items() if file is None]
    if len(missing) == len(names):
        return None
    if missing:
        there = [name for name in names if name not in missing]
        raise ConfigError(
            f"{' and '.join(there)} without {' and '.join(missing)}: set all of WEFT_TLS_CERT, WEFT_TLS_KEY and "
            "WEFT_TLS_CA, or none"
        )
    for name in ("secret", "secret_file"):
        if getattr(settings, name) is not None:
            raise ConfigError(
                f"{name} and tls_cert are both set: a job's ranks prove themselves by a secret or by certificates. "
                "Set WEFT_SECRET (or WEFT_SECRET_FILE), or WEFT_TLS_CERT, WEFT_TLS_KEY and WEFT_TLS_CA, but not both"
            )
    cert, key, ca = (os.fspath(file) for file in files.values())
    return cert, key, ca


def with_secret(variables: Mapping[str, str]) -> dict[str, str]:
    """Variables for a new job's ranks: these, and a secret unless they have one or certificates."""
    if any(variables.get(name) for name in ("WEFT_SECRET", "WEFT_SECRET_FILE", "WEFT_TLS_CERT")):
        return dict(variables)
    return {**variables, "WEFT_SECRET": secrets.token_hex(32)}


def peers_directory() -> Path:
    """The directory in which `weft bench --install-peers` installs."""
    return _users_directory("XDG_CACHE_HOME", ".cache") / "weft" / "peers"


def environment() -> dict[str, str]:
    """A copy of the environment, for programs that start processes."""
    return dict(os.environ)


def _value(setting: Setting, arguments: Mapping[str, Any], variables: Mapping[str, str]) -> Any:
    if setting.name in arguments:
        return arguments[setting.name]
    text = variables.get(setting.environment)
    return setting.default if text is None else setting.read(text)


def _warn_of_unknown(variables: Mapping[str, str]) -> None:
    known = [setting.environment for setting in SETTINGS]
    for name in variables:
        if name.startswith(PREFIX) and name not in known:
            warnings.warn(f"{name} is not a setting of weft; {_hint(name, known)}", stacklevel=3)


def _hint(name: str, known: Collection[str]) -> str:
    import difflib

    near = difflib.get_close_matches(name, known, 1)
    return f"did you mean {near[0]}?" if near else f"known are {', '.join(known)}"
