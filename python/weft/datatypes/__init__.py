"""Types of elements, and operations on them."""
