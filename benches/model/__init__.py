"""Holds the simulator's model against this machine: `python -m benches.model`."""
