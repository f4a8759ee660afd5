"""Flight records, metrics and reports of groups."""
