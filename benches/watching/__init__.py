"""`weft top` beside jobs with faults: when it names rank, operation and host, and what it costs."""
