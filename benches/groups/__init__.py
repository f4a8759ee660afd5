"""Process groups of torch over weft and over Gloo: the cost of making one, and many live ones."""
