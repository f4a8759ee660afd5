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
    printed = [
        output["text"].strip()
        for cell in notebook.cells
        for output in cell.get("outputs", [])
        if output["output_type"] == "stream" and output["name"] == "stdout"
    ]
    assert "1 tensor([1., 1., 1., 1.])" in printed
    assert any("2 tensor([2., 2., 2., 2.])" in text for text in printed), printed
    assert printed[-1] == str([[3.0] * 4] * 3)
