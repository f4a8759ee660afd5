"""Tests of ranks as processes of this host."""

import pytest

from weft.processes import local_ranks


def test_every_rank_learns_its_place() -> None:
    check = "import os; assert os.environ['WORLD_SIZE'] == '2' and os.environ['RANK'] in '01', dict(os.environ)"
    local_ranks.run(local_ranks.commands(["-c", check], 2, 1))


def test_a_failed_rank_ends_the_others() -> None:
    program = "import os, sys, time\nif os.environ['RANK'] == '0': sys.exit(3)\ntime.sleep(60)"
    with pytest.raises(local_ranks.RanksError, match="status 3"):
        local_ranks.run(local_ranks.commands(["-c", program], 2, 1))
