"""The training run of `weft demo`: its script, and the comparison of two runs' records."""
