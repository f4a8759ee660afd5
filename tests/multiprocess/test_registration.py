"""Tests of registered arrays between processes; those over RDMA are in `tests/rdma`."""

import pytest
import tasks_registration as tasks

from weft import cli


@pytest.mark.parametrize("transport", ["shm", "tcp"])
@pytest.mark.parametrize("ranks", [2])
@pytest.mark.parametrize(
    "task", [tasks.sums, tasks.registrable_arrays, tasks.lifetime, tasks.stages], ids=lambda task: task.__name__
)
def test_registration(team, task):
    team.run(task)


def test_the_benchmark_draws_stages(tmp_path, capsys):
    picture = tmp_path / "stages.svg"
    effort = ["--sizes", "4M", "--rounds", "1", "--seconds", "0.1", "--processor-seconds", "0"]
    assert cli.main(["bench", "all-reduce", "--transport", "tcp", *effort, "--stages", str(picture)]) == 0
    text = picture.read_text()
    assert "weft" in text and ">send</text>" in text and ">reduction</text>" in text
    assert ">registration</text>" not in text
    assert f"stages: {picture}" in capsys.readouterr().out
