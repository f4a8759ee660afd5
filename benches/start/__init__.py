"""Start-up of many ranks on one host: how long it takes, and what it takes."""
