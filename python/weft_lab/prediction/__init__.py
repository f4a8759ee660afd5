"""Prediction of training steps on machines that one does not have: `weft predict`."""
