"""Prediction of training steps on machines that the user does not have: `weft predict`."""
