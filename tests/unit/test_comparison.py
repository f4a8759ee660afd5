"""The table and picture of `weft demo`."""

import base64
import json
from pathlib import Path

import numpy as np

from weft import comparison


def record(path: Path, backend: str, parameters: list[float]) -> comparison.Run:
    path.write_text(
        json.dumps(
            {
                "backend": backend,
                "ranks": 4,
                "epochs": 1,
                "test_accuracy": 0.98,
                "samples_per_second": 12345.6,
                "train_seconds": 10.0,
                "communication_seconds": 2.5,
                "losses": [2.0, 1.0],
                "parameters": {
                    "weight": {
                        "shape": [2],
                        "float32": base64.b64encode(np.array(parameters, np.float32).tobytes()).decode(),
                    }
                },
            }
        )
    )
    return comparison.Run.read(path)


def test_table_and_picture(tmp_path: Path) -> None:
    runs = [
        record(tmp_path / "a.json", "weft", [1.0, -2.0]),
        record(tmp_path / "b.json", "gloo", [1.0, -2.5]),
    ]
    assert comparison.table(runs).splitlines() == [
        "backend  test accuracy  samples/s  communication  of training  max |difference|",
        "   weft         98.00%     12,346         2.50 s          25%                  ",
        "   gloo         98.00%     12,346         2.50 s          25%          5.00e-01",
    ]
    comparison.draw(tmp_path / "picture.png", runs)
    assert (tmp_path / "picture.png").read_bytes().startswith(b"\x89PNG")
