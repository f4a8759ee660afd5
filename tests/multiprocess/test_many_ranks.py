"""More ranks on one host than are all linked with each other."""

from benches.start.__main__ import seconds_to_first_sum
from benches.start.ranks import start


def test_many_ranks_sum_with_few_links_each() -> None:
    ranks = start(80, timeout=60.0)
    assert [rank.failure for rank in ranks] == [None] * 80
    assert seconds_to_first_sum(ranks) < 60
    # 14 control neighbours of six descriptors each, and the endpoint's own; links to all 79 others
    # would take 474. Rank 0 has all connections to its store as well.
    assert max(rank.descriptors for rank in ranks[1:]) < 130
