"""The laboratory of weft: benchmarks, emulated hosts, experiments, predictions, reports.

It is a distribution of its own, `weft-lab`, whose commands `weft` finds as entry points.
"""
