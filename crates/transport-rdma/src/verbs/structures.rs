//! The structures of `<infiniband/verbs.h>`, whose layout is an ABI that libibverbs has kept since
//! version 1.

use std::ffi::{c_int, c_uint, c_void};

/// Declares a structure that only the library accesses.
macro_rules! opaque {
    ($($name:ident)*) => {
        $(
            #[repr(C)]
            pub(crate) struct $name {
                _private: [u8; 0],
            }
        )*
    };
}

opaque!(Device ProtectionDomain);

/// `struct ibv_context`, as far as it is used here.
#[repr(C)]
pub(crate) struct Context {
    device: *mut Device,
    pub(crate) ops: ContextOps,
    pub(crate) cmd_fd: c_int,
    pub(crate) async_fd: c_int,
}

/// `struct ibv_context_ops`: the functions that are called for every operation.
#[repr(C)]
pub(crate) struct ContextOps {
    before_poll: [*const c_void; 11],
    pub(crate) poll_cq:
        unsafe extern "C" fn(*mut RawCompletionQueue, c_int, *mut WorkCompletion) -> c_int,
    pub(crate) req_notify_cq: unsafe extern "C" fn(*mut RawCompletionQueue, c_int) -> c_int,
    before_send: [*const c_void; 12],
    pub(crate) post_send:
        unsafe extern "C" fn(*mut RawQueuePair, *mut SendRequest, *mut *mut SendRequest) -> c_int,
    pub(crate) post_recv: unsafe extern "C" fn(
        *mut RawQueuePair,
        *mut ReceiveRequest,
        *mut *mut ReceiveRequest,
    ) -> c_int,
    after_receive: [*const c_void; 5],
}

/// `struct ibv_mr`.
#[repr(C)]
pub(crate) struct MemoryRegion {
    context: *mut Context,
    domain: *mut ProtectionDomain,
    address: *mut c_void,
    length: usize,
    handle: u32,
    pub(crate) lkey: u32,
    pub(crate) rkey: u32,
}

/// `struct ibv_comp_channel`.
#[repr(C)]
pub(crate) struct CompletionChannel {
    context: *mut Context,
    pub(crate) fd: c_int,
    references: c_int,
}

/// `struct ibv_cq`, as far as it is used here.
#[repr(C)]
pub(crate) struct RawCompletionQueue {
    pub(crate) context: *mut Context,
}

/// `struct ibv_qp`, as far as it is used here.
#[repr(C)]
pub(crate) struct RawQueuePair {
    pub(crate) context: *mut Context,
    user_context: *mut c_void,
    domain: *mut ProtectionDomain,
    queues: [*mut c_void; 3],
    handle: u32,
    pub(crate) number: u32,
}

/// `struct ibv_qp_cap`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(crate) struct QueueCapacities {
    pub(crate) max_send_wr: u32,
    pub(crate) max_recv_wr: u32,
    pub(crate) max_send_sge: u32,
    pub(crate) max_recv_sge: u32,
    pub(crate) max_inline_data: u32,
}

/// `struct ibv_qp_init_attr`.
#[repr(C)]
pub(crate) struct QueuePairInit {
    pub(crate) user_context: *mut c_void,
    pub(crate) send_cq: *mut RawCompletionQueue,
    pub(crate) recv_cq: *mut RawCompletionQueue,
    pub(crate) shared_receive_queue: *mut c_void,
    pub(crate) capacities: QueueCapacities,
    pub(crate) kind: c_int,
    pub(crate) signal_all: c_int,
}

/// `struct ibv_global_route`.
#[repr(C, align(8))]
#[derive(Clone, Copy, Default)]
pub(crate) struct GlobalRoute {
    pub(crate) gid: [u8; 16],
    pub(crate) flow_label: u32,
    pub(crate) gid_index: u8,
    pub(crate) hop_limit: u8,
    pub(crate) traffic_class: u8,
}

/// `struct ibv_ah_attr`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(crate) struct AddressVector {
    pub(crate) route: GlobalRoute,
    pub(crate) lid: u16,
    pub(crate) service_level: u8,
    pub(crate) path_bits: u8,
    pub(crate) static_rate: u8,
    pub(crate) is_global: u8,
    pub(crate) port: u8,
}

/// `struct ibv_qp_attr`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(crate) struct QueuePairAttributes {
    pub(crate) state: c_int,
    pub(crate) current_state: c_int,
    pub(crate) path_mtu: c_int,
    pub(crate) migration: c_int,
    pub(crate) qkey: u32,
    pub(crate) receive_psn: u32,
    pub(crate) send_psn: u32,
    pub(crate) peer_number: u32,
    pub(crate) access: c_uint,
    pub(crate) capacities: QueueCapacities,
    pub(crate) address: AddressVector,
    pub(crate) other_address: AddressVector,
    pub(crate) pkey_index: u16,
    pub(crate) other_pkey_index: u16,
    pub(crate) notify_drained: u8,
    pub(crate) draining: u8,
    pub(crate) max_reads: u8,
    pub(crate) max_peer_reads: u8,
    pub(crate) min_rnr_timer: u8,
    pub(crate) port: u8,
    pub(crate) timeout: u8,
    pub(crate) retries: u8,
    pub(crate) rnr_retries: u8,
    pub(crate) other_port: u8,
    pub(crate) other_timeout: u8,
    pub(crate) rate_limit: u32,
}

/// `struct ibv_port_attr`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(crate) struct PortAttributes {
    pub(crate) state: c_int,
    pub(crate) max_mtu: c_int,
    pub(crate) active_mtu: c_int,
    pub(crate) gids: c_int,
    pub(crate) capabilities: u32,
    pub(crate) max_message: u32,
    pub(crate) bad_pkeys: u32,
    pub(crate) qkey_violations: u32,
    pub(crate) pkeys: u16,
    pub(crate) lid: u16,
    pub(crate) manager_lid: u16,
    pub(crate) lid_mask: u8,
    pub(crate) lanes: u8,
    pub(crate) manager_level: u8,
    pub(crate) subnet_timeout: u8,
    pub(crate) init_type: u8,
    pub(crate) width: u8,
    pub(crate) speed: u8,
    pub(crate) physical_state: u8,
    pub(crate) link_layer: u8,
    pub(crate) flags: u8,
    pub(crate) more_capabilities: u16,
}

/// `struct ibv_device_attr`, as far as it is used here.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct DeviceAttributes {
    before_reads: [u64; 18],
    /// The most reads and atomics of its peers that a queue pair executes at a time.
    pub(crate) max_peer_reads: c_int,
    between: [c_int; 2],
    /// The most of its own.
    pub(crate) max_reads: c_int,
    more: c_int,
    /// 0 where the device has no atomics.
    pub(crate) atomics: c_int,
    rest: [u64; 8],
}

/// `struct ibv_sge`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct ScatterGather {
    pub(crate) address: u64,
    pub(crate) length: u32,
    pub(crate) lkey: u32,
}

/// `struct ibv_send_wr`, whose union has the fields of an atomic operation; those of a write or
/// read are at `remote_address` and `compare_add`.
#[repr(C)]
pub(crate) struct SendRequest {
    pub(crate) id: u64,
    pub(crate) next: *mut SendRequest,
    pub(crate) pieces: *mut ScatterGather,
    pub(crate) piece_count: c_int,
    pub(crate) opcode: c_int,
    pub(crate) flags: c_uint,
    /// In network order.
    pub(crate) immediate: u32,
    pub(crate) remote: RemoteOperand,
    pub(crate) qp_type: u32,
    pub(crate) extension: [u64; 6],
}

/// The union in [`SendRequest`].
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) union RemoteOperand {
    pub(crate) rdma: RdmaOperand,
    pub(crate) atomic: AtomicOperand,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct RdmaOperand {
    pub(crate) address: u64,
    pub(crate) rkey: u32,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct AtomicOperand {
    pub(crate) address: u64,
    pub(crate) compare_add: u64,
    pub(crate) swap: u64,
    pub(crate) rkey: u32,
}

/// `struct ibv_recv_wr`.
#[repr(C)]
pub(crate) struct ReceiveRequest {
    pub(crate) id: u64,
    pub(crate) next: *mut ReceiveRequest,
    pub(crate) pieces: *mut ScatterGather,
    pub(crate) piece_count: c_int,
}

/// `struct ibv_wc`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(crate) struct WorkCompletion {
    pub(crate) id: u64,
    pub(crate) status: c_int,
    pub(crate) opcode: c_int,
    pub(crate) vendor_error: u32,
    pub(crate) bytes: u32,
    /// In network order.
    pub(crate) immediate: u32,
    pub(crate) queue_pair: u32,
    pub(crate) source: u32,
    pub(crate) flags: c_uint,
    pub(crate) pkey_index: u16,
    pub(crate) lid: u16,
    pub(crate) service_level: u8,
    pub(crate) path_bits: u8,
}

/// The header's layout on 64-bit machines, according to gcc.
#[cfg(target_pointer_width = "64")]
const _: () = {
    use std::mem::{offset_of, size_of};

    assert!(size_of::<ContextOps>() == 256);
    assert!(offset_of!(ContextOps, poll_cq) == 88);
    assert!(offset_of!(ContextOps, req_notify_cq) == 96);
    assert!(offset_of!(ContextOps, post_send) == 200);
    assert!(offset_of!(ContextOps, post_recv) == 208);
    assert!(offset_of!(Context, ops) == 8);
    assert!(offset_of!(Context, cmd_fd) == 264);
    assert!(offset_of!(Context, async_fd) == 268);
    assert!(offset_of!(MemoryRegion, lkey) == 36);
    assert!(offset_of!(MemoryRegion, rkey) == 40);
    assert!(offset_of!(CompletionChannel, fd) == 8);
    assert!(offset_of!(RawQueuePair, number) == 52);
    assert!(size_of::<QueueCapacities>() == 20);
    assert!(size_of::<QueuePairInit>() == 64);
    assert!(offset_of!(QueuePairInit, capacities) == 32);
    assert!(offset_of!(QueuePairInit, kind) == 52);
    assert!(size_of::<AddressVector>() == 32);
    assert!(offset_of!(AddressVector, lid) == 24);
    assert!(offset_of!(AddressVector, port) == 30);
    assert!(size_of::<QueuePairAttributes>() == 144);
    assert!(offset_of!(QueuePairAttributes, capacities) == 36);
    assert!(offset_of!(QueuePairAttributes, address) == 56);
    assert!(offset_of!(QueuePairAttributes, max_reads) == 126);
    assert!(offset_of!(QueuePairAttributes, port) == 129);
    assert!(offset_of!(QueuePairAttributes, rnr_retries) == 132);
    assert!(size_of::<PortAttributes>() == 52);
    assert!(offset_of!(PortAttributes, active_mtu) == 8);
    assert!(offset_of!(PortAttributes, lid) == 34);
    assert!(offset_of!(PortAttributes, link_layer) == 46);
    assert!(size_of::<DeviceAttributes>() == 232);
    assert!(offset_of!(DeviceAttributes, max_peer_reads) == 144);
    assert!(offset_of!(DeviceAttributes, max_reads) == 156);
    assert!(offset_of!(DeviceAttributes, atomics) == 164);
    assert!(size_of::<ScatterGather>() == 16);
    assert!(size_of::<SendRequest>() == 128);
    assert!(offset_of!(SendRequest, immediate) == 36);
    assert!(offset_of!(SendRequest, remote) == 40);
    assert!(offset_of!(SendRequest, qp_type) == 72);
    assert!(offset_of!(RdmaOperand, rkey) == 8);
    assert!(offset_of!(AtomicOperand, rkey) == 24);
    assert!(size_of::<ReceiveRequest>() == 32);
    assert!(size_of::<WorkCompletion>() == 48);
    assert!(offset_of!(WorkCompletion, immediate) == 24);
};
