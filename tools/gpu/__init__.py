"""Common parts of tests and measurements on a machine with a GPU: package, ranks, results."""
