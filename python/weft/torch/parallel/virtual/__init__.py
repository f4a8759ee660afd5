"""Virtual ranks: sums of gradients whose bits do not depend on the number of ranks."""
