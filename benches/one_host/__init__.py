"""Targets for weft on one host, against other libraries and the floors: `make bench-one-host`."""
