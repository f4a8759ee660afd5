"""The training run of `weft demo`: its script, and the comparison of what two runs have recorded."""
