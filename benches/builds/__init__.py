"""Comparison of two builds of weft, with a second instance of the old build as the control."""
