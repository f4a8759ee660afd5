"""The documentation site: pages of docs/ and what they link to, built by `make site`."""
