"""The repository's experiments and recorded runs: none of it ships."""
