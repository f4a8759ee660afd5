"""Targets for weft on several hosts and beside neighbours, against peers: `make bench-hosts`."""
