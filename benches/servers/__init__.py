"""Parameter servers with workers of unequal speed, and with a server that is killed."""
