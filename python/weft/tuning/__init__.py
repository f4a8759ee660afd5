"""Measures a group, chooses its algorithms, and keeps the choice in a profile."""
