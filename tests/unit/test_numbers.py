"""Numbers that no setting and no option may take: infinite, NaN, too large, negative, empty."""

import argparse
import contextlib
import itertools
import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from weft import config, launchers
from weft.cli import COMMANDS, load
from weft.errors import ConfigError
from weft.settings import SETTINGS, GroupOptions, Setting

TEXTS = ["inf", "-inf", "nan", "1e400", "-1e400", "1e308", "1e400G", "infG", "-1", "-4K", "", "  ", "9" * 400, "0x10"]
VALUES = [math.inf, -math.inf, math.nan, -1, -0.5, 10**400, 1 << 80, [], object(), np.ones(2), True]
NATIVE_MAX = (1 << 63) - 1


def is_numeric(setting: Setting) -> bool:
    """Whether it reads texts of numbers."""
    for text in ("1", "1M"):
        with contextlib.suppress(ValueError):
            value = setting.parse(text)
            return isinstance(value, int | float) and not isinstance(value, bool)
    return False


NUMERIC = [setting for setting in SETTINGS if is_numeric(setting)]


def test_numbers_are_found_in_the_registry() -> None:
    assert {setting.name for setting in NUMERIC} >= {"peer_timeout", "timeout", "pool_bytes", "device_tile"}


@pytest.mark.parametrize("setting", NUMERIC, ids=lambda setting: setting.name)
def test_variables_and_keywords_refuse_unusable_numbers(setting: Setting) -> None:
    for text in TEXTS:
        with pytest.raises(ConfigError, match=f"{setting.environment}=.* is not allowed: expected"):
            config.load(variables={setting.environment: text})
        with pytest.raises(ConfigError, match="is not allowed: expected"):
            config.load({setting.name: text}, {})
    for value in VALUES:
        with pytest.raises(ConfigError, match=f"{setting.name}=.* is not allowed: expected"):
            config.load({setting.name: value}, {})
        if setting.name in GroupOptions.__annotations__:
            with pytest.raises(ConfigError, match="is not allowed: expected"):
                config.accept(GroupOptions, {setting.name: value})


def test_numbers_of_numpy_are_numbers() -> None:
    given = {"timeout": np.int64(5), "peer_timeout": np.float32(2), "pool_bytes": np.int64(1 << 20)}
    assert config.load(given, {}).timeout == 5


@pytest.mark.parametrize("name", ["topology", "domains"])
@pytest.mark.parametrize("unit", [-1, 1 << 40, 0.5, math.nan, True])
def test_levels_refuse_invalid_numbers(name: str, unit: object) -> None:
    with pytest.raises(ConfigError, match=name):
        config.load({name: [[0, unit]]}, {})


@pytest.mark.parametrize("value", [("x", "y"), ("127.0.0.1", 1 << 20), ("127.0.0.1", math.nan), ("127.0.0.1",)])
def test_metrics_refuse_invalid_ports(value: tuple[object, ...]) -> None:
    with pytest.raises(ConfigError, match="metrics"):
        config.load({"metrics": value}, {})


@pytest.mark.parametrize(
    "rank,size", [(0.5, 2), (0, 2.0), (0, math.inf), (math.nan, 2), (-1, 2), (0, 1 << 40), ("0", 2)]
)
def test_placements_refuse_invalid_ranks(rank: Any, size: Any) -> None:
    with pytest.raises(ConfigError, match="is not allowed"):
        launchers.place({}, rank, size, "127.0.0.1:29500")


@pytest.mark.parametrize("text", ["-1", "", "inf", "1.5", "9" * 5000])
def test_launchers_variables_refuse_invalid_numbers(text: str) -> None:
    for variables in ({"RANK": text, "WORLD_SIZE": "2"}, {"RANK": "0", "WORLD_SIZE": text}):
        with pytest.raises(ConfigError, match="is not allowed"):
            launchers.place({**variables, "MASTER_ADDR": "a", "MASTER_PORT": "29500"})


@pytest.mark.parametrize("name", COMMANDS)
def test_options_take_only_numbers_that_can_be_used(name: str) -> None:
    parser = argparse.ArgumentParser()
    load(name).add_arguments(parser)
    for action, text in itertools.product(parser._actions, TEXTS):
        parse: Any = action.type
        if parse is None or parse is str:
            continue
        try:
            found = parse(text)
        except argparse.ArgumentTypeError:
            continue
        for number in numbers(found):
            assert -NATIVE_MAX <= number <= NATIVE_MAX, f"{action.option_strings}: {text}"


def numbers(value: object) -> Iterator[float]:
    """Returns all numbers in an option's value."""
    if isinstance(value, int | float):
        yield value
    elif isinstance(value, list | tuple):
        for part in value:
            yield from numbers(part)
