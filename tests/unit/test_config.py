"""Tests of settings: precedence of arguments, variables and defaults, and error messages."""

from pathlib import Path

import pytest

import weft
from tools.pages import configuration
from weft import config, parsing, selection
from weft.errors import ConfigError
from weft.schedule import CallShape, plan
from weft.settings import SETTINGS, GroupOptions


def check(expected, variables=None, **arguments):
    settings = config.load(arguments, variables or {})
    assert {name: getattr(settings, name) for name in expected} == expected


def check_refused(message, variables=None, **arguments):
    with pytest.raises(ConfigError) as caught:
        config.load(arguments, variables or {})
    assert message in str(caught.value)


def test_defaults():
    check({"transport": "auto", "interface": None, "pool_bytes": 2**30, "timeout": 300.0, "peer_timeout": 10.0})


def test_variables():
    variables = {"WEFT_TRANSPORT": "tcp", "WEFT_POOL_BYTES": "256M", "WEFT_TIMEOUT": " 2.5 ", "WEFT_INTERFACE": "eth1"}
    check({"transport": "tcp", "pool_bytes": 2**28, "timeout": 2.5, "interface": "eth1"}, variables)
    check({"tcp_congestion": "bbr"}, {"WEFT_TCP_CONGESTION": "bbr"})
    check_refused(
        "WEFT_TCP_CONGESTION='' is not allowed: expected auto, host, or the name of", {"WEFT_TCP_CONGESTION": ""}
    )


@pytest.mark.parametrize(
    ("text", "expected"), [("1", True), ("true", True), ("0", False), ("aes-gcm", "aes-gcm"), ("AES-GCM", "aes-gcm")]
)
def test_encryption_is_a_flag_or_a_cipher(text, expected):
    check({"encrypt": expected}, {"WEFT_ENCRYPT": text})
    check({"encrypt": expected}, encrypt=text)


def test_unknown_ciphers_are_refused():
    message = "is not allowed: expected 1, 0, aes-gcm or chacha20-poly1305"
    check_refused(f"WEFT_ENCRYPT='rot13' {message}", {"WEFT_ENCRYPT": "rot13"})
    check_refused(f"encrypt=2 {message}", encrypt=2)


def test_ways_to_register():
    check({"registration": "pipelined"}, {"WEFT_REGISTRATION": "pipelined"})
    check_refused("registration='handle' is not allowed: expected one of pool, pipelined", registration="handle")


def test_arguments_win():
    check(
        {"transport": "shm", "timeout": 7}, {"WEFT_TRANSPORT": "tcp", "WEFT_TIMEOUT": "3"}, transport="shm", timeout=7
    )


def test_an_argument_of_none_does_not_count():
    check({"transport": "tcp"}, {"WEFT_TRANSPORT": "tcp"}, transport=None)


def test_bytes_as_text():
    check({"pool_bytes": 64 * 2**20}, pool_bytes="64MiB")


@pytest.mark.parametrize(
    ("text", "expected"), [("4096", 4096), ("64K", 65536), ("1.5G", 3 * 2**29), ("2 MiB", 2**21), ("1tb", 2**40)]
)
def test_parse_bytes(text, expected):
    assert parsing.parse_bytes(text) == expected


def test_choices_as_text():
    variables = {
        "WEFT_ALGORITHM": "all-reduce=multi-rail(slice-reduce, ring), broadcast=binomial",
        "WEFT_SCHEDULES": "chain=chain.txt, star=/srv/star.txt",
        "WEFT_REPRODUCIBLE": "1",
        "WEFT_TOPOLOGY": "0,0,1,1/0,0,0,0",
        "WEFT_DOMAINS": "0,0,1,1",
        "WEFT_PROFILE": "none",
    }
    expected = {
        "algorithm": {"all-reduce": "multi-rail(slice-reduce, ring)", "broadcast": "binomial"},
        "schedules": {"chain": "chain.txt", "star": "/srv/star.txt"},
        "reproducible": True,
        "topology": [[0, 0, 1, 1], [0, 0, 0, 0]],
        "domains": [[0, 0, 1, 1]],
        "profile": "none",
    }
    check(expected, variables)
    check(
        {"algorithm": {"reduce": "direct"}, "reproducible": False},
        variables,
        algorithm="reduce=direct",
        reproducible=False,
    )


def test_domains_are_found_declared_or_ignored():
    def declared(arguments, variables):
        return selection.native_options(config.load(arguments, variables).of(GroupOptions), 1).get("domains")

    assert declared({}, {}) is None
    assert declared({"domains": "auto"}, {"WEFT_DOMAINS": "0,1"}) is None
    assert declared({"domains": "none"}, {}) == []
    assert declared({"domains": "0,1/0,0"}, {}) == [[0, 1], [0, 0]]


def test_subgroup_ignores_schedules_for_all_ranks(tmp_path):
    for ranks in (2, 4):
        plan("ring", CallShape("all-reduce", ranks)).schedule.save(tmp_path / f"{ranks}.txt")
    (tmp_path / "wrong.txt").write_text("collective nothing")
    files = {name: tmp_path / f"{name}.txt" for name in ("2", "4", "wrong")}
    forced = {"all-reduce": "4", "broadcast": "binomial", "reduce": "wrong"}
    kept = selection.of_some_ranks(config.load({"schedules": files, "algorithm": forced}, {}), 2)
    assert list(kept["schedules"]) == ["2", "wrong"]
    assert kept["algorithm"] == {"broadcast": "binomial", "reduce": "wrong"}


def test_wrong_choices_are_named():
    check_refused("WEFT_ALGORITHM='ring' is not allowed: expected collective=algorithm", {"WEFT_ALGORITHM": "ring"})
    check_refused("WEFT_ALGORITHM='reduce=a,reduce=b'", {"WEFT_ALGORITHM": "reduce=a,reduce=b"})
    check_refused("WEFT_SCHEDULES='chain.txt' is not allowed: expected name=file", {"WEFT_SCHEDULES": "chain.txt"})
    check_refused("WEFT_SCHEDULES='a=x,a=y'", {"WEFT_SCHEDULES": "a=x,a=y"})
    check_refused("WEFT_REPRODUCIBLE='maybe' is not allowed: expected 1 or 0", {"WEFT_REPRODUCIBLE": "maybe"})
    check_refused("WEFT_TOPOLOGY='0,x'", {"WEFT_TOPOLOGY": "0,x"})
    check_refused("WEFT_DOMAINS='some' is not allowed: expected auto, none, or", {"WEFT_DOMAINS": "some"})
    check_refused("algorithm=['ring']", algorithm=["ring"])
    check_refused("schedules=['a.txt']", schedules=["a.txt"])
    check_refused("topology=[0, 1]", topology=[0, 1])
    check_refused("profile=''", profile="")


def test_wrong_variables_are_named():
    check_refused("WEFT_TRANSPORT='pigeon' is not allowed: expected one of auto, shm", {"WEFT_TRANSPORT": "pigeon"})
    check_refused("WEFT_TIMEOUT='soon'", {"WEFT_TIMEOUT": "soon"})
    check_refused("WEFT_TIMEOUT='nan'", {"WEFT_TIMEOUT": "nan"})
    check_refused("WEFT_POOL_BYTES='1Q'", {"WEFT_POOL_BYTES": "1Q"})
    check_refused("WEFT_INTERFACE=''", {"WEFT_INTERFACE": ""})


def test_wrong_arguments_are_named():
    check_refused("timeout=0 is not allowed", timeout=0)
    check_refused("timeout=[]", timeout=[])
    check_refused("pool_bytes=10", pool_bytes=10)
    check_refused("transport='pigeon'", transport="pigeon")


def test_a_misspelt_variable_is_noticed():
    with pytest.warns(UserWarning, match="WEFT_TRANPORT is not a setting of weft; did you mean WEFT_TRANSPORT"):
        config.load({}, {"WEFT_TRANPORT": "tcp"})


def test_the_documentation_is_current():
    page = Path(__file__).parents[2] / "docs" / "reference" / "configuration.md"
    assert page.read_text() == configuration.page(), "run `make docs`"


def test_unknown_options_are_refused():
    with pytest.raises(TypeError, match="unexpected keyword argument 'tiemout': did you mean timeout"):
        weft.init(0, 1, tiemout=3)
    with weft.init(0, 1, transport="loopback") as group, pytest.raises(TypeError, match="known are timeout, algorithm"):
        group.new_group([0], pool_bytes=1 << 20)


def test_group_options_reach_the_native_layer():
    values = {setting.name: setting.default for setting in SETTINGS} | {"domains": [[0]], "topology": [[0]]}
    assert set(GroupOptions.__annotations__) <= set(values)
    with weft.init(0, 1, **values) as group:
        options = {name: values[name] for name in GroupOptions.__annotations__}
        assert group.new_group([0], **options).size == 1
        with pytest.raises(TypeError, match='"unheard-of" is not an option of a group'):
            group.native.split([0], "child", **{"unheard-of": 1})


def test_log_and_metrics_options():
    check({"log": None, "metrics": None})
    variables = {"WEFT_LOG": "INFO", "WEFT_METRICS": ":9400"}
    check({"log": "info", "metrics": ("127.0.0.1", 9400)}, variables)
    check({"log": "error", "metrics": Path("/run/weft.prom")}, variables, log="error", metrics="/run/weft.prom")
    check({"metrics": ("::", 9400)}, {"WEFT_METRICS": "[::]:9400"})
    check({"metrics": ("10.0.0.1", 0)}, metrics="10.0.0.1:0")
    check_refused("WEFT_LOG='loud' is not allowed: expected one of debug, info, warning", {"WEFT_LOG": "loud"})
    for wrong in ("9400", ":65536", ":-1", "/run/weft", "/run/weft.txt", "http://host:9400", ":http"):
        expected = f"WEFT_METRICS='{wrong}' is not allowed: expected :port, address:port, or the path of a file"
        check_refused(expected, {"WEFT_METRICS": wrong})
    check_refused("metrics=9400 is not allowed", metrics=9400)
