"""Groups of ranks, and what they do with arrays."""
