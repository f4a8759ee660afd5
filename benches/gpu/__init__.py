"""Measurements on a machine with a GPU: copies, all-reduces, a product beside one, training."""
