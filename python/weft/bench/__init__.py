"""Measures collectives, weft's and other libraries' in turn, and checks every result.

The rows that come out have the same shape in every benchmark of the project: see `weft.bench.rows.Row`.
"""
