"""Tuning of a group: measurement and algorithm selection, stored as a profile."""
