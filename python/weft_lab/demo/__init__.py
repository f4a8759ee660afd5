"""The training run of `weft demo`, the comparison of runs, and an all-reduce to be read."""
