"""torch's operations on tensors of GPUs."""
