"""Device tensors: operations on the memory of GPUs, by way of host memory, without kernels."""
