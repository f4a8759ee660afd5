"""Diagnosis of a machine, and of the way to others."""
