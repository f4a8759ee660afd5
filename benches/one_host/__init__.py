"""`make bench-one-host`: weft on one host against everybody else and against the floors, with a target for each."""
