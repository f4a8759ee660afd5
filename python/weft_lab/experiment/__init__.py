"""Experiments on training, each one a command: `weft experiment NAME`."""
