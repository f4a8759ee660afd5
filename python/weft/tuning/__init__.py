"""Tuning of a group: measurement, algorithm selection, and its storage in a profile."""
