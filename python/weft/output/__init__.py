"""Files, logs and text for people."""
