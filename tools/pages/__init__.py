"""The generated pages of docs/: `python -m tools.pages docs` writes all of them."""
