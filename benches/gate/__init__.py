"""Benchmark of DDP training steps over weft and Gloo, recorded before and after every change."""
