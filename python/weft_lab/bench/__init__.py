"""Benchmarks of collectives of weft and other libraries, with a check of every result.

The rows have the same fields in every benchmark of the project: see `weft_lab.bench.rows.BenchRow`.
"""
