"""Predictions of `weft predict` against measured steps: `python -m benches.prediction`."""
