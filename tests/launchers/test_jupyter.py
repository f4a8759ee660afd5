"""Test of the notebook of docs/launchers/jupyter.md, in a real kernel."""

from __future__ import annotations

from pathlib import Path

import pytest
from cluster import EXAMPLES, environment

nbclient = pytest.importorskip("nbclient", reason="nbclient is not installed here: make test-launchers")
nbformat = pytest.importorskip("nbformat")


def test_the_notebook_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in environment().items():
        monkeypatch.setenv(name, value)
    notebook = nbformat.read(EXAMPLES / "notebook.ipynb", as_version=4)
    client = nbclient.NotebookClient(notebook, timeout=120, resources={"metadata": {"path": str(tmp_path)}})
    client.execute()
    printed = [" ".join(_lines(cell.get("outputs", []))) for cell in notebook.cells]
    assert "1 tensor([1., 1., 1., 1.])" in printed
    assert "2 tensor([2., 2., 2., 2.])" in printed, printed
    assert printed[-1] == str([[3.0] * 4] * 3)


def _lines(outputs: list[dict[str, str]]) -> list[str]:
    """Returns the printed lines of a cell, which may have arrived in parts."""
    return [
        output["text"].strip() for output in outputs if output["output_type"] == "stream" and output["name"] == "stdout"
    ]
