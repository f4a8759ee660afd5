"""Benchmark of compression: the language model's time to a fixed loss on slow networks."""
