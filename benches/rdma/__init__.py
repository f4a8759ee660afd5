"""RDMA against TCP on one host's devices: times of all-reduces as ratios."""
