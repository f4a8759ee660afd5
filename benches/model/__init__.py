"""The simulator's predictions against measurements on this machine: `python -m benches.model`."""
