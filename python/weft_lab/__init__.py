"""The laboratory of weft: benchmarks, emulated hosts, experiments, predictions, reports.

It is a separate distribution, `weft-lab`, whose commands `weft` finds as entry points.
"""
