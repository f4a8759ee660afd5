"""Features of torch over weft, with their tests: the table of docs/reference/torch.md."""

from __future__ import annotations

import dataclasses

__all__ = ["FEATURES", "Feature"]

_YES = "yes"
_REFUSED = "refused by torch"


@dataclasses.dataclass(frozen=True)
class Feature:
    """One row of the table."""

    area: str
    name: str
    tests: tuple[str, ...]
    """Test functions of tests/torch, as `file:function` without `test_`."""
    status: str = _YES
    note: str = ""


FEATURES = (
    Feature(
        "Operations",
        "all collectives of CPU tensors, strided and empty ones, all element types",
        ("collectives:collective",),
    ),
    Feature("Operations", "send, recv, isend, irecv, batch_isend_irecv, any source", ("point_to_point:messages",)),
    Feature(
        "Operations",
        "`async_op=True`, futures, callbacks that block",
        ("work:work", "work:wait_with_timeout", "work:facts"),
    ),
    Feature(
        "Operations",
        "groups: `new_group`, several at once, destroyed and made again",
        ("groups:new_group", "groups:several_groups_at_once"),
    ),
    Feature(
        "Operations",
        "all collectives and messages of CUDA tensors, by way of the host",
        ("device_tensors:every_collective", "device_tensors:handles", "device_tensors:unsupported_tensors_are_refused"),
        "tested on emulated devices, not run on a GPU",
        "see [CUDA tensors](../how-to/cuda.md)",
    ),
    Feature(
        "Operations",
        "all collectives and messages of tensors of other accelerators: `cpu:weft,xpu:weft`",
        ("device_tensors:every_collective", "device_tensors:queued_handles", "python_device:operations_and_futures"),
        "from torch 2.14 on; tested on a device written in Python, not on a real one",
        "see [Other accelerators](../how-to/cuda.md#other-accelerators)",
    ),
    Feature(
        "Operations",
        "tensors of other devices to another backend of the group: `cpu:weft,cuda:nccl`",
        ("versions:other_devices", "versions:no_backend_for_other_devices"),
        "from torch 2.14 on",
        "older ones raise an error that says so; with GPUs it is not tested",
    ),
    Feature("Operations", "sparse COO tensors, complex numbers", ("sparse:reduction", "sparse:same_as_gloo")),
    Feature(
        "Operations",
        "`split_group`, groups that only their members make, several threads",
        ("groups:other_ways_to_make_groups", "groups:groups_of_several_threads"),
    ),
    Feature(
        "Operations",
        "a dead rank becomes an exception on the others",
        ("groups:dead_rank", "groups:dead_rank_during_backward"),
    ),
    Feature(
        "Operations",
        "tensors in symmetric memory: `weft.torch.empty_symmetric`",
        ("symmetric:operations", "symmetric:parts_and_places", "symmetric:freeing"),
    ),
    Feature(
        "Operations",
        "default devices and types, `TorchFunctionMode`, `TorchDispatchMode`",
        ("caller_modes:functions", "caller_modes:methods_of_groups", "caller_modes:training"),
    ),
    Feature("DDP", "same training as with Gloo", ("ddp:same_as_gloo",)),
    Feature("DDP", "`find_unused_parameters`", ("ecosystem_ddp:unused_parameters",)),
    Feature(
        "DDP",
        "`static_graph`, `gradient_as_bucket_view`",
        ("ecosystem_ddp:static_graph_with_bucket_views", "ddp:options"),
    ),
    Feature("DDP", "`no_sync`", ("ecosystem_ddp:no_sync",)),
    Feature("DDP", "`join` with uneven inputs", ("ecosystem_ddp:join_with_uneven_inputs",)),
    Feature("DDP", "communication hooks fp16 and bf16", ("ecosystem_ddp:compression_hook", "ddp:comm_hook")),
    Feature(
        "DDP",
        "wire formats: the hook `weft.torch.wire_hook`, `WEFT_WIRE`, `weft.torch.wire_format`",
        ("wire:hook_averages_within_the_bound", "wire:ddp_uses_wire_format_of_group", "wire:context"),
    ),
    Feature("DDP", "communication hook PowerSGD", ("ecosystem_ddp:power_sgd", "ddp:comm_hook")),
    Feature(
        "DDP",
        "callbacks of communication hooks, beside the backward pass, in one order on all ranks",
        ("comm_hooks:same_as_gloo", "comm_hooks:overlap_with_backward", "comm_hooks:hooks_of_joined_ranks"),
    ),
    Feature(
        "DDP",
        "communication modes: `weft.torch.hooks`",
        ("modes:contract", "mode_hooks:same_as_torch", "mode_hooks:training_converges"),
    ),
    Feature(
        "DDP",
        "the bits of virtual ranks, with a rank for each: the mode `VirtualRanks`",
        (
            "virtual_ranks:hook_of_ddp_has_the_bits_of_virtual_ranks",
            "virtual_ranks:hook_of_ddp_needs_a_rank_for_each_virtual_rank",
        ),
    ),
    Feature("DDP", "post-local SGD", ("ecosystem_ddp:post_local_sgd",)),
    Feature("DDP", "mixed precision by `torch.autocast`", ("ecosystem_ddp:autocast",)),
    Feature(
        "DDP",
        "`mixed_precision=`",
        ("ecosystem_ddp:ddp_mixed_precision_is_refused_by_torch",),
        _REFUSED,
        "with every backend, without an accelerator: take `torch.autocast`",
    ),
    Feature(
        "DDP",
        "`weft.torch.SyncBatchNorm`, `convert_sync_batchnorm`",
        ("batch_norm:same_as_one_process", "batch_norm:batches_of_different_sizes", "batch_norm:training"),
    ),
    Feature(
        "DDP",
        "`torch.nn.SyncBatchNorm`",
        ("ecosystem_ddp:sync_batch_norm_is_refused_by_torch",),
        _REFUSED,
        "on CPU, with every backend: take weft's",
    ),
    Feature(
        "DDP",
        "`weft.torch.DataParallel` and `weft.torch.Overlapped` in place of DDP",
        ("overlap:features", "overlap:optimizers", "overlap_compile:compiled_blocks", "overlap_failures:dead_rank"),
        note="communication continues into the next forward: [Training](../how-to/training.md)",
    ),
    Feature("DDP", "ZeroRedundancyOptimizer", ("ecosystem_ddp:zero_redundancy_optimizer",)),
    Feature("DDP", "DistributedSampler", ("ecosystem_ddp:distributed_sampler",)),
    Feature(
        "Sharding",
        "FSDP2 `fully_shard`, also with mixed precision",
        ("ecosystem_sharded:fully_shard", "ecosystem_sharded:fully_shard_mixed_precision"),
    ),
    Feature(
        "Sharding",
        "FSDP2 in symmetric memory: `set_allocate_memory_from_process_group_for_comm`",
        (
            "ecosystem_sharded:fully_shard_in_symmetric_memory",
            "ecosystem_sharded:hybrid_shard_in_symmetric_memory",
            "symmetric:lent_blocks",
        ),
        note="the same bits as without; the ranks that share parameters are on one host",
    ),
    Feature("Sharding", "FSDP2 on a two-dimensional mesh", ("ecosystem_sharded:hybrid_shard",)),
    Feature("Sharding", "FSDP1: full, gradients only, none", ("ecosystem_sharded:fsdp1",)),
    Feature("Sharding", "DTensor", ("ecosystem_sharded:dtensor",)),
    Feature("Sharding", "DeviceMesh", ("ecosystem_sharded:device_mesh",)),
    Feature("Sharding", "tensor parallelism by `parallelize_module`", ("ecosystem_sharded:tensor_parallel",)),
    Feature("Sharding", "pipeline parallelism: GPipe, 1F1B", ("ecosystem_sharded:pipeline",)),
    Feature(
        "Sharding",
        "`torch.distributed.checkpoint`",
        ("ecosystem_sharded:checkpoint", "ecosystem_sharded:asynchronous_checkpoint"),
        note="also asynchronous, and loaded on another number of ranks",
    ),
    Feature("Compiler", "functional collectives", ("ecosystem_compile:functional_collectives",)),
    Feature(
        "Compiler",
        "`torch.compile` over functional and plain collectives",
        ("ecosystem_compile:compiled_functional_collectives", "ecosystem_compile:compiled_plain_collectives"),
    ),
    Feature("Compiler", "`torch.compile` of a DDP model", ("ecosystem_compile:compiled_ddp",)),
    Feature(
        "Tools",
        "`torch.profiler`",
        ("ecosystem_compile:profiler",),
        note="operations have torch's names, such as `c10d::allreduce_`, and weft's, `weft:all_reduce`",
    ),
    Feature(
        "Tools",
        "`TORCH_DISTRIBUTED_DEBUG=DETAIL`",
        ("ecosystem_compile:detailed_debugging", "ecosystem_compile:detailed_debugging_finds_mismatches"),
        note="before torch 2.14 weft's own check of calls replaces torch's",
    ),
    Feature(
        "Tools",
        "`monitored_barrier`, which names the missing ranks",
        ("monitoring:monitored_barrier", "monitoring:missing_ranks"),
    ),
    Feature(
        "Tools",
        "survivors of a killed rank continue in a smaller group",
        ("shrink:training_continues_with_remaining_ranks", "shrink:a_group_of_some_ranks"),
        note="`weft.torch.shrink(group)`, which finds out which ranks are left",
    ),
    Feature(
        "Tools",
        "`torch.distributed.shrink_group`, which takes the ranks to remove",
        (
            "excluding:living_ranks_are_left_out",
            "excluding:store_that_died_with_its_rank",
            "excluding:lists_that_differ",
        ),
        note="from torch 2.14 on; the ranks that remain pass the same list; the new group is for CPU tensors",
    ),
    Feature(
        "Operations",
        "`merge_remote_group` of a process group",
        ("merging:groups_become_one", "merging:group_that_does_not_come"),
        note="from torch 2.14 on, as with Gloo",
    ),
    Feature(
        "Operations",
        "settings of one group: `pg_options=weft.torch.Options(reproducible=True)`",
        ("pg_options:settings_of_a_group", "pg_options:options_that_differ", "pg_options:wrong_options"),
        note="those of `weft.Group.new_group`",
    ),
    Feature(
        "Tools",
        "abort hooks: `register_abort_hook` of a process group",
        ("abort_hooks:hooks_of_a_dead_rank", "abort_hooks:hooks_of_an_abort"),
        note="from torch 2.15 on; each runs once, before an abort or when the group has failed",
    ),
    Feature(
        "Tools",
        '`init_process_group("weft", enable_reconfigure=True)` and `reconfigure`',
        ("reconfiguration:members_come_and_go", "reconfiguration:survivors", "reconfiguration:wrong_calls"),
        note="from torch 2.15 on, as with Gloo; members meet at the group's store, which must outlive them",
    ),
    Feature(
        "Tools",
        "torch's debug server: `weft.torch.DebugPage`",
        ("monitoring:debug_server_shows_the_job", "monitoring:debug_server_shows_the_state_of_operations"),
        note="from torch 2.14 on; the states of operations are those of weft's own flight record",
    ),
    Feature("Tools", "torchrun restarts a job of which a rank was killed", ("ecosystem_elastic:elastic_restart",)),
    Feature(
        "Frameworks",
        "Lightning, Accelerate, Transformers' Trainer",
        ("ecosystem_frameworks:training",),
        note="tested by `make test-ecosystem`",
    ),
    Feature(
        "Frameworks",
        "DeepSpeed on CPUs, ZeRO",
        ("ecosystem_frameworks:deepspeed",),
        note='`deepspeed.init_distributed(dist_backend="weft")`; tested with stage 1 by `make test-ecosystem`',
    ),
    Feature(
        "Frameworks",
        "gradients of JAX, by `weft.init()`",
        ("ecosystem_frameworks:gradients_of_jax",),
        note="in place on a copy, `numpy.array(x)`, as JAX's arrays do not change; sources are read as they "
        "are (DLPack); tested by `make test-ecosystem`",
    ),
    Feature(
        "Frameworks",
        "`weft.torch.lightning.WeftStrategy`, `weft.torch.accelerate.overlap`",
        ("ecosystem_frameworks:overlapped_training",),
        note="`DataParallel` and `Overlapped` by the framework; tested by `make test-ecosystem`",
    ),
    Feature(
        "Frameworks",
        "torchft's `Manager(pg=weft.torch.torchft.ProcessGroupWeft())`",
        ("ecosystem_frameworks:torchft_continues_without_a_killed_replica",),
        note="tested by `make test-ecosystem`; torch 2.14 or newer",
    ),
)
"""In the order of the table."""
