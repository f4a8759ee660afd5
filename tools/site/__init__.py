"""The documentation site: pages of docs/ and linked files, built by `make site`."""
