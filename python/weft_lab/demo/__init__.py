"""The training run of `weft demo`, the comparison of runs, and a readable all-reduce."""
