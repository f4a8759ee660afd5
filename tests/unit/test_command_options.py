"""Tests of options: which values commands take, which they refuse and how, before work begins."""

import dataclasses
import importlib.metadata
import subprocess
import sys
from pathlib import Path

import pytest

from weft import cli
from weft.cli import COMMANDS, LABORATORY, load, main, parser
from weft_lab.cli.bench_options import sizes

REFUSED = [
    ("bench allreduce --sizes 4:1", "'4:1': the last size is smaller than the first"),
    ("bench allreduce --sizes 3,5,7", "3 bytes are not a whole number of elements: float32 has 4 bytes"),
    ("bench allreduce --sizes 4:8 --dtype float64", "give sizes that are multiples of 8"),
    ("bench allreduce --sizes 4:x", "'x' is not a number of bytes"),
    ("bench allreduce --sizes 4:8:1", "a factor at least 2"),
    ("bench allreduce --sizes infG", "--sizes"),
    ("bench allreduce --hosts 0", "--hosts: 0 is not allowed; expected a whole number, between 1 and 250"),
    ("bench allreduce --hosts 2.5", "'2.5' is not a whole number"),
    ("bench allreduce --hosts 2 --delay-ms -1", "between 0 and 10000"),
    ("bench allreduce --hosts 2 --gbps nan", "nan is not allowed; expected a number, between 0.001 and 1000"),
    ("bench allreduce --seconds -1", "--seconds: -1 is not allowed; expected a number, 0 or more"),
    ("bench allreduce --seconds inf", "inf is not allowed"),
    ("bench allreduce --processor-seconds -1", "-1 is not allowed; expected a number, 0 or more"),
    ("bench allreduce --rounds 0", "0 is not allowed; expected a whole number, 1 or more"),
    ("bench allreduce --busy -1", "-1 is not allowed; expected a whole number, between 0 and 1024"),
    ("bench allreduce --ranks 2,0", "0 is not allowed"),
    ("bench allreduce --ranks 64 -d bf16", "results can be verified exactly with up to 36 ranks"),
    ("bench allreduce -b 8 -e 4", "the last size is smaller than the first"),
    ("bench allreduce -f 1", "1 is not allowed; expected a whole number, 2 or more"),
    ("bench allreduce --sizes 4 -b 8", "--sizes and -b both say which sizes"),
    ("bench allreduce -m 4:8 -e 16", "-m says what -b and -e say"),
    ("bench allreduce -i 0", "0 is not allowed; expected a whole number, between 1 and 16384"),
    ("bench allreduce -x -1", "-1 is not allowed"),
    ("bench allgather --place both", "--place both is for the library's own all-reduce and reduce"),
    ("bench allreduce --registration handle", "memory that RDMA adapters read: give --transport rdma"),
    ("bench allreduce --transport rdma --registration heap", "'heap' is not one of pool, handle, pipelined, per-call"),
    ("bench barrier --transport rdma --registration handle", "--registration is for collectives"),
    ("bench put --transport rdma --registration handle", "--registration is for collectives"),
    ("bench allreduce --transport rdma --registration pool --through torch", "name one, without --through"),
    ("bench put --stages a.svg", "--stages is for collectives of the library"),
    ("bench allreduce --stages a.svg --ranks 2,4", "--stages draws one call: give one number of --ranks"),
    ("bench allreduce --stages a.png", "a.png: .png is not allowed; expected a name in .svg"),
    ("bench allreduce -d complex64", "choose from 'float32'"),
    ("bench allreduce --plot x.xyz", "x.xyz: .xyz is not allowed; expected a name in .png, .svg or .pdf"),
    ("bench allreduce --plot x", "x: no ending is not allowed"),
    ("bench allreduce --json rows.txt", "expected a name in .json"),
    ("bench allreduce --json /dev/null/rows.json", "/dev/null is not a directory"),
    ("bench sumreduce", "choose from 'all-reduce'"),
    ("bench", "which collective? One of all-reduce"),
    ("demo --hosts 0", "0 is not allowed; expected a whole number, between 1 and 250"),
    ("demo --hosts 2 --gbps -1", "-1 is not allowed; expected a number, between 0.001 and 1000"),
    ("demo --script no/such.py", "no/such.py does not exist"),
    ("demo --out /dev/null", "/dev/null is not a directory"),
    ("doctor --hosts a,,b", "'' is not the name or address of a host"),
    ("doctor --listen 0", "0 is not allowed; expected a number, more than 0"),
    ("doctor --port 0", "between 1 and 65535"),
    ("doctor --hosts a --listen", "--hosts and --listen are for the two ends"),
    ("experiment overlap --hosts 251", "between 1 and 250"),
    ("experiment lenet --shapes 4", "'4' is not HOSTSxRANKS, such as 4x2"),
    ("experiment lenet --shapes 1x2,251x1", "between 1 and 250"),
    ("experiment lenet --shapes 8x2 --batch 8", "at most one for each sample of the batch, 8"),
    ("experiment lenet --shapes 1x1", "expected 2 ranks or more"),
    ("experiment lenet --hosts 2", "give --shapes"),
    ("experiment overlap --delay-ms 20", "--delay-ms is for the experiment far"),
    ("experiment far --ranks 4", "a site of far has one rank"),
    ("experiment far --cut 10", "'10' is not SECONDS+SECONDS, such as 10+30"),
    ("experiment overlap --cut 10+30", "--cut is for the experiment far"),
    ("experiment far --period 5 --delay-steps 5", "--period 5: expected at least --fragments, 3, and more than"),
    ("experiment far --contenders ddp-gloo", "'ddp-gloo' is not one of none, exact"),
    ("experiment overlap --seed 1", "--seed is for the experiment elastic"),
    ("experiment elastic --ratio 1", "a training of elastic runs once"),
    ("experiment elastic --hosts 5", "--hosts: expected at most 4, the number of virtual ranks"),
    ("experiment elastic --ranks 5", "--ranks: expected at most 4"),
    ("experiment elastic --hosts 3 --ranks 2", "--ranks 2: expected at least one for each of 3 hosts"),
    ("experiment elastic --gbps 1", "give --hosts as well"),
    ("experiment elastic --faults-count 3", "give --seed as well"),
    ("experiment elastic --train vgg16", "'vgg16' is not one of language, lenet"),
    ("experiment elastic --faults kill", "'kill' is not a fault: expected KIND:NUMBER@STEP"),
    ("experiment elastic --faults cut:0@5+1", "--faults: cut:0@5+1: one host has no line to cut"),
    ("experiment elastic --seed 1 --faults join@3", "not allowed with argument"),
    ("experiment elastic --quick --faults kill:0@60", "--faults: kill:0@60: step 60 is not allowed"),
    ("experiment elastic --contenders far", "'far' is not one of"),
    ("experiment overlap --shapes 1x2", "--shapes is for the experiment lenet"),
    (
        "hosts --hosts 2 --master-port 99999 -- true",
        "99999 is not allowed; expected a whole number, between 1 and 65535",
    ),
    ("hosts --hosts 2 --master-port 0 -- true", "0 is not allowed"),
    ("hosts --hosts 2 --grace -1 -- true", "-1 is not allowed; expected a number, 0 or more"),
    ("hosts --hosts 2 --ranks-per-host 0 -- true", "0 is not allowed"),
    ("hosts --hosts 2 --interfaces 5 -- true", "between 1 and 4"),
    ("hosts --hosts 2 --interfaces 2 --delay-ms 1 -- true", "cannot be combined"),
    ("hosts --hosts 2 --lose 1@5 -- true", "'1@5' is not HOST.INTERFACE@SECONDS+SECONDS, such as 1.0@5+3"),
    ("hosts --hosts 2 --lose 1.0:up@5+3 -- true", "1.0:out@5+3 or 1.0:in@5+3 for one direction"),
    ("hosts --hosts 2 --lose 1.0@5+3 --delay-ms 1 -- true", "cannot be combined"),
    ("hosts --hosts 2 --forget 1.0@5 -- true", "'1.0@5' is not HOST@SECONDS or HOST@SECONDS:reset, such as 1@5"),
    ("hosts --hosts 2 --forget 1@5 --delay-ms 1 -- true", "cannot be combined"),
    ("hosts --hosts 2 --share no/such -- true", "no/such is not a directory"),
    ("plan ring --draw a.png", "a.png: .png is not allowed; expected a name in .svg"),
    ("plan ring --machine no.json", "no.json does not exist"),
    ("predict no.py --hosts 2", "no.py does not exist"),
    ("predict --model lenet --hosts 2 --gbps 0", "0 is not allowed; expected a number, more than 0"),
    ("predict --model lenet --hosts 2 --timeout 0", "more than 0"),
    ("predict --profile no.json --hosts 2", "no.json does not exist"),
    ("report no/such.json", "no/such.json does not exist"),
    ("report . --output page.txt", "expected a name in .html"),
    ("simulate --ranks 4 --hosts 2 --gbps 0", "0 is not allowed; expected a number, more than 0"),
    ("simulate --ranks 4 --schedule none.txt", "none.txt does not exist"),
    ("simulate --ranks 4 --plot x.gif", ".gif is not allowed"),
    ("trace --output trace.txt", "expected a name in .json"),
    ("trace --most -1", "-1 is not allowed"),
    ("tune --ranks 1", "1 is not allowed; expected a whole number, 2 or more"),
    ("tune --collectives sum", "'sum' is not one of all-reduce"),
    ("tune --output profile.txt", "expected a name in .json"),
]


@pytest.mark.parametrize(("words", "message"), REFUSED, ids=[words for words, _ in REFUSED])
def test_bad_values_are_refused_with_status_2(
    words: str, message: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(subprocess, "Popen", None)  # nothing is started
    try:
        status = main(words.split())
    except SystemExit as ended:
        status = ended.code
    error = capsys.readouterr().err
    assert status == 2
    assert f"weft {words.split()[0]}: error: " in error and message in error


@pytest.mark.parametrize("words", ["bench all-reduce", "bench --help", "simulate"])
def test_laboratory_commands_name_package_to_install(
    words: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(importlib.metadata, "entry_points", lambda **_: ())
    assert main(words.split()) == 1
    assert "which is not installed: pip install weft-lab" in capsys.readouterr().err


def test_completion_leaves_out_missing_commands(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(importlib.metadata, "entry_points", lambda **_: ())
    with pytest.raises(SystemExit):
        main(["--print-completion", "bash"])
    script = capsys.readouterr().out
    assert "--event-driven" not in script and "--explain" in script


def test_each_laboratory_command_has_an_entry_point() -> None:
    found = importlib.metadata.entry_points(group="weft.commands")
    assert {entry.name for entry in found} == LABORATORY
    assert {load(name).name for name in LABORATORY} == LABORATORY


@pytest.mark.parametrize("module", ["torch", "no_package_of_weft_s"])
def test_missing_packages_are_named_and_defects_shown(
    module: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def load_it(_: object) -> int:
        raise ModuleNotFoundError(name=module)

    monkeypatch.setattr(cli, "load", lambda name: dataclasses.replace(load(name), run=load_it))
    if module == "torch":
        assert main(["doctor"]) == 1
        assert capsys.readouterr().err == "weft doctor: packages are missing: pip install torch\n"
    else:
        with pytest.raises(ModuleNotFoundError):
            main(["doctor"])


@pytest.mark.parametrize(
    ("spelling", "name"),
    [
        ("allreduce", "all-reduce"),
        ("all_reduce", "all-reduce"),
        ("AllReduce", "all-reduce"),
        ("reducescatter", "reduce-scatter"),
        ("reduce_scatter", "reduce-scatter"),
        ("AllGather", "all-gather"),
        ("alltoall", "all-to-all"),
        ("bcast", "broadcast"),
        ("pingpong", "ping-pong"),
        ("barrier", "barrier"),
    ],
)
def test_usual_spellings_of_collectives(spelling: str, name: str) -> None:
    assert parser().parse_args(["bench", spelling]).collective == name
    assert parser().parse_args(["simulate", "--ranks", "4", "--collective", spelling]).collective == name
    assert parser().parse_args(["plan", "--list", "--collective", spelling]).collective == name


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("allreduce -b 8 -e 128 -f 2", [8, 16, 32, 64, 128]),
        ("allreduce -b 8 -e 128", [8, 32, 128]),
        ("allreduce -b 1G", [1 << 30]),
        ("allreduce -m 64", [4, 8, 16, 32, 64]),
        ("allreduce -m 16:64", [16, 32, 64]),
        ("allreduce -e 16 -d double", [8]),
        ("allreduce -e 16", [4, 16]),
        ("barrier", [4]),
    ],
)
def test_sizes_as_other_benchmarks_are_asked_for_them(words: str, expected: list[int]) -> None:
    assert sizes(parser().parse_args(["bench", *words.split()])) == expected


def test_options_of_other_benchmarks() -> None:
    parsed = parser().parse_args(["bench", "allreduce", "-i", "100", "-x", "10", "-d", "half"])
    assert (parsed.iterations, parsed.warmup, parsed.dtype) == (100, 10, "float16")
    parsed = parser().parse_args(["bench", "allreduce", "-n", "100", "-w", "10", "-d", "bfloat16"])
    assert (parsed.iterations, parsed.warmup, parsed.dtype) == (100, 10, "bfloat16")


@pytest.mark.parametrize("name", COMMANDS)
def test_every_option_has_a_type_that_refuses(name: str) -> None:
    of_command = parser((name,))._subparsers._group_actions[0].choices[name]
    plain = [
        action.dest
        for action in of_command._actions
        if action.option_strings and action.nargs != 0 and action.type in (None, int, float, str, Path)
    ]
    free = {"--algorithms", "--arguments"}  # names that the core refuses
    known = {action.dest for action in of_command._actions if action.choices or free & set(action.option_strings)}
    assert set(plain) <= known, "give it a type of weft.cli.values"
    assert load(name).name == name


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    import weft

    with pytest.raises(SystemExit) as ended:
        main(["--version"])
    assert (ended.value.code, capsys.readouterr().out) == (0, f"weft {weft.__version__}\n")


@pytest.mark.parametrize("shell", ["bash", "zsh"])
def test_completion_knows_commands_and_options(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["--print-completion", shell])
    script = capsys.readouterr().out
    assert ended.value.code == 0
    for word in ("doctor", "simulate", "--event-driven", "all-reduce"):
        assert word in script


def test_help_loads_no_command() -> None:
    program = "import sys, weft.cli\ntry: weft.cli.main(['--help'])\nexcept SystemExit: print(*sys.modules)"
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    loaded = ran.stdout.split()
    assert not {"weft_lab.cli.bench", "weft.simulation", "rich", "torch", "matplotlib"} & set(loaded)


def test_the_list_of_commands_is_made_quickly() -> None:
    """In hundredths of a second: counted in calls, which no busy machine changes."""
    calls: list[str] = []
    before = sys.getprofile()
    sys.setprofile(lambda _frame, event, _argument: calls.append(event))
    try:
        parser(())
    finally:
        sys.setprofile(before)
    assert 100 < calls.count("call") < 20_000
