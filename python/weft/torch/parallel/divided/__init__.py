"""Divided updates: each rank updates a share of every bucket's parameters, and sends it to all.

[Note: Divided updates] The gradients of a divided bucket are reduce-scattered: each rank gets the
averages of its share. When `step` was called and they have arrived, the rank updates its share on
the group's communication thread (see [Note: Callbacks of hooks]) and starts an all-gather of the
bucket's parameters, which a rank that does other things meanwhile holds up no more than another.
The first use of a parameter waits for that, so urgent buckets come first, in one order on all
ranks; the planner knows these windows (see `costs.exposure`). So the work of the optimizer and its
state are divided by the number of ranks.

- `division`: the shares of a bucket, their memory and their operations.
- `one_copy`: the same, with parameters of which a host's ranks have one copy.
- `optimizer`: the user's optimizer, on the shares of this rank; its state in full.
- `step`: a pending update.
- `norm`: the norm of divided gradients.
"""
