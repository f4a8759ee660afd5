"""Tests of the page of algorithms: its formulas against the verifier's counts."""

import math
import re

import pytest

from tools.pages.algorithms import files
from weft.schedule import Algorithm, CallShape, Formula, algorithms, plan

ROWS = [(algorithm, formula) for algorithm in algorithms() for formula in algorithm.about.formulas]
MINUS = "\N{MINUS SIGN}"


def evaluated(formula: str, ranks: int) -> float | None:
    """The value for a message of 1; None where it is given in words."""
    text = re.sub(r"^(root|rank 0): ", "", formula).replace(MINUS, "-")
    for brackets, function in (("⌊⌋", "floor"), ("⌈⌉", "ceil")):
        text = re.sub(rf"{brackets[0]}log₂ (P|\(.*?\)){brackets[1]}", rf"{function}(\1)", text)
    if re.search(r"[^\W\dNP]", re.sub("floor|ceil", "", text)):
        return None
    text = re.sub(r"(?<=[NP\d)]) (?=[NP(fc])", " * ", text)
    names = {"N": 1, "P": ranks, "floor": lambda p: math.floor(math.log2(p)), "ceil": lambda p: math.ceil(math.log2(p))}
    return float(eval(text, {"__builtins__": {}}, names)) if text else 0.0


@pytest.mark.parametrize("ranks", [2, 3, 5, 8, 12])
@pytest.mark.parametrize(("algorithm", "formula"), ROWS, ids=lambda x: getattr(x, "name", getattr(x, "memory", None)))
def test_formulas_match_counts_of_verifier(algorithm: Algorithm, formula: Formula, ranks: int) -> None:
    memory = "ordinary" if formula.memory == "any" else formula.memory
    planned = plan(algorithm.full_name, CallShape(algorithm.collective, ranks, memory=memory))
    assert planned.report is not None
    counted = {
        "steps": planned.report.latency_steps,
        "sent": max(share or 0.0 for share in planned.report.sent),
        "read": max(share or 0.0 for share in planned.report.read),
    }
    for name, value in counted.items():
        expected = evaluated(getattr(formula, name), ranks)
        if expected is not None:
            assert value == pytest.approx(expected), (name, getattr(formula, name))


def test_most_formulas_are_evaluated() -> None:
    texts = [text for _, formula in ROWS for text in (formula.steps, formula.sent, formula.read)]
    assert sum(evaluated(text, 4) is not None for text in texts) > 0.75 * len(texts)


def test_every_algorithm_has_a_section_and_a_drawing() -> None:
    generated = dict(files())
    page = generated["algorithms.md"]
    for algorithm in algorithms():
        section = page[page.index(f"\n### {algorithm.collective} `{algorithm.name}`\n") :]
        drawing = f"algorithms/{algorithm.collective}-{algorithm.name}.svg"
        assert f"]({drawing})" in section
        assert generated[drawing].startswith("<svg")
    assert len(generated) == len(algorithms()) + 1
