"""Diagnosis of a machine, and of its connections to others."""
