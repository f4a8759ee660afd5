"""Training steps of DDP over weft against Gloo: the measurement that is recorded before and after every change."""
