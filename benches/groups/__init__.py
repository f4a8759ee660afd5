"""Process groups of torch over weft and over Gloo: what making one takes, and how many can live."""
