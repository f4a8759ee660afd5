"""Generated pages of docs/, all written by `python -m tools.pages docs`."""
