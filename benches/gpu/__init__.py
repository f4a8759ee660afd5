"""Measurements on a machine with a GPU: copies, all-reduces, a concurrent product, training."""
