"""Flight records, metrics, reports: what a group shows of its work."""
