"""Start-up of many ranks on one host: its time and its resources."""
