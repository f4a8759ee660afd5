//! Queue pairs of reliable connections.

use std::ffi::c_int;
use std::io;
use std::ptr::{self, NonNull};
use std::sync::Arc;

use weft_transport::AtomicOp;

use super::completion::CompletionQueue;
use super::structures as raw;
use super::{OpenDevice, Port, check, made};

/// `IBV_QPT_RC`.
const RELIABLE_CONNECTION: c_int = 2;
/// The number of retransmissions of an unacknowledged packet: the largest possible.
const RETRIES: u8 = 7;

/// Registered memory of this process.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LocalMemory {
    pub(crate) address: u64,
    pub(crate) bytes: u32,
    pub(crate) key: u32,
}

/// Memory of the peer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct PeerMemory {
    pub(crate) address: u64,
    pub(crate) key: u32,
}

/// A work request for a queue pair.
#[derive(Clone, Copy, Debug)]
pub(crate) enum QueuePairWork {
    /// Writes to the peer's memory.
    Write(LocalMemory, PeerMemory),
    /// Writes, and notifies the peer with a number.
    WriteAndNotify(LocalMemory, PeerMemory, u32),
    /// Only notifies.
    Notify(u32),
    /// Reads the peer's memory.
    Read(LocalMemory, PeerMemory),
    /// Changes eight bytes of it.
    Atomic(LocalMemory, PeerMemory, AtomicOp),
}

/// How a request is executed.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Posting {
    /// Whether its completion is reported.
    pub(crate) signaled: bool,
    /// Whether its bytes are copied when it is posted.
    pub(crate) inline: bool,
    /// Whether it waits for earlier reads and atomics.
    pub(crate) fenced: bool,
}

/// The information that a peer needs to reach a queue pair.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct QueuePairAddress {
    pub(crate) number: u32,
    /// The number of the first packet.
    pub(crate) psn: u32,
    pub(crate) lid: u16,
    pub(crate) mtu: u8,
    /// The most reads and atomics that it executes at a time.
    pub(crate) reads: u8,
    pub(crate) gid: [u8; 16],
}

/// The treatment of packets by the network.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct ServiceLevel {
    /// The service level of InfiniBand, and the priority of flow control over Ethernet.
    pub(crate) level: u8,
    /// The byte in the IP header.
    pub(crate) traffic_class: u8,
    /// The acknowledgement timeout, in verbs' encoding: 4.096 us times two to its power.
    pub(crate) timeout: u8,
}

/// One end of a reliable connection.
pub(crate) struct QueuePair {
    pair: NonNull<raw::RawQueuePair>,
    inline_bytes: u32,
    device: Arc<OpenDevice>,
}

// SAFETY: the library's functions may be called from any thread.
unsafe impl Send for QueuePair {}
// SAFETY: as above.
unsafe impl Sync for QueuePair {}

/// The states of a queue pair, and the attributes that each step sets.
mod step {
    pub(super) const INIT: (i32, i32) = (1, STATE | PKEY_INDEX | PORT | ACCESS);
    pub(super) const READY_TO_RECEIVE: (i32, i32) = (
        2,
        STATE | ADDRESS | PATH_MTU | PEER_NUMBER | RECEIVE_PSN | MAX_PEER_READS | MIN_RNR_TIMER,
    );
    pub(super) const READY_TO_SEND: (i32, i32) = (
        3,
        STATE | TIMEOUT | RETRIES | RNR_RETRIES | SEND_PSN | MAX_READS,
    );
    const STATE: i32 = 1;
    const ACCESS: i32 = 1 << 3;
    const PKEY_INDEX: i32 = 1 << 4;
    const PORT: i32 = 1 << 5;
    const ADDRESS: i32 = 1 << 7;
    const PATH_MTU: i32 = 1 << 8;
    const TIMEOUT: i32 = 1 << 9;
    const RETRIES: i32 = 1 << 10;
    const RNR_RETRIES: i32 = 1 << 11;
    const RECEIVE_PSN: i32 = 1 << 12;
    const MAX_READS: i32 = 1 << 13;
    const MIN_RNR_TIMER: i32 = 1 << 15;
    const SEND_PSN: i32 = 1 << 16;
    const MAX_PEER_READS: i32 = 1 << 17;
    const PEER_NUMBER: i32 = 1 << 20;
}

impl QueuePair {
    /// A queue pair of a port, with room for this many requests each way.
    pub(crate) fn new(
        port: &Port,
        completions: &CompletionQueue,
        (sends, receives): (u32, u32),
        inline_bytes: u32,
    ) -> io::Result<QueuePair> {
        let device = &completions.device;
        let mut init = raw::QueuePairInit {
            user_context: ptr::null_mut(),
            send_cq: completions.queue.as_ptr(),
            recv_cq: completions.queue.as_ptr(),
            shared_receive_queue: ptr::null_mut(),
            capacities: raw::QueueCapacities {
                max_send_wr: sends,
                max_recv_wr: receives,
                max_send_sge: 1,
                max_recv_sge: 1,
                max_inline_data: inline_bytes,
            },
            kind: RELIABLE_CONNECTION,
            signal_all: 0,
        };
        // SAFETY: the domain and the queues are alive.
        let pair = unsafe { (device.verbs.ibv_create_qp)(device.domain(), &mut init) };
        let pair = QueuePair {
            pair: made("ibv_create_qp", pair)?,
            inline_bytes: init.capacities.max_inline_data.min(inline_bytes),
            device: Arc::clone(device),
        };
        let mut attributes = raw::QueuePairAttributes {
            port: port.number,
            // Peers may write, read and change memory of which they have keys.
            access: 0b1110,
            ..Default::default()
        };
        pair.step(step::INIT, &mut attributes)?;
        Ok(pair)
    }

    /// The device's number for it.
    pub(crate) fn number(&self) -> u32 {
        // SAFETY: made by the library, and alive until this is dropped.
        unsafe { self.pair.as_ref() }.number
    }

    /// The most bytes that can be sent [inline](Posting::inline).
    pub(crate) fn inline_bytes(&self) -> u32 {
        self.inline_bytes
    }

    /// Connects to a peer's queue pair.
    pub(crate) fn connect(
        &self,
        port: &Port,
        own: &QueuePairAddress,
        peer: &QueuePairAddress,
        service: ServiceLevel,
    ) -> io::Result<()> {
        let mut attributes = raw::QueuePairAttributes {
            path_mtu: c_int::from(own.mtu.min(peer.mtu)),
            peer_number: peer.number,
            receive_psn: peer.psn,
            max_peer_reads: self.device.reads(),
            // 0.64 ms: a peer sends without room only after an error.
            min_rnr_timer: 12,
            address: raw::AddressVector {
                route: raw::GlobalRoute {
                    gid: peer.gid,
                    gid_index: port.gid_index.unwrap_or_default(),
                    hop_limit: 64,
                    traffic_class: service.traffic_class,
                    ..Default::default()
                },
                lid: peer.lid,
                service_level: service.level,
                is_global: u8::from(port.gid_index.is_some()),
                port: port.number,
                ..Default::default()
            },
            ..Default::default()
        };
        self.step(step::READY_TO_RECEIVE, &mut attributes)?;
        let mut attributes = raw::QueuePairAttributes {
            timeout: service.timeout,
            retries: RETRIES,
            rnr_retries: RETRIES - 1,
            send_psn: own.psn,
            max_reads: peer.reads.min(self.device.reads()),
            ..Default::default()
        };
        self.step(step::READY_TO_SEND, &mut attributes)
    }

    fn step(
        &self,
        (state, mask): (c_int, c_int),
        attributes: &mut raw::QueuePairAttributes,
    ) -> io::Result<()> {
        attributes.state = state;
        // SAFETY: the pair is alive, and the structure is the library's.
        check("ibv_modify_qp", unsafe {
            (self.device.verbs.ibv_modify_qp)(self.pair.as_ptr(), attributes, mask)
        })
    }

    /// Accepts this many more writes with an immediate.
    pub(crate) fn receive(&self, count: usize) -> io::Result<()> {
        for _ in 0..count {
            let mut request = raw::ReceiveRequest {
                id: 0,
                next: ptr::null_mut(),
                pieces: ptr::null_mut(),
                piece_count: 0,
            };
            let mut refused = ptr::null_mut();
            let post = self.operations().post_recv;
            // SAFETY: the pair is alive; the request is copied.
            check("ibv_post_recv", unsafe {
                post(self.pair.as_ptr(), &mut request, &mut refused)
            })?;
        }
        Ok(())
    }

    /// Posts a work request. The caller must make sure that there is room.
    ///
    /// # Safety
    /// Local memory that the request reads or writes is registered, and stays so until it is
    /// complete or the pair is gone; nothing else accesses memory that it writes. The bytes of an
    /// inline posting are readable now.
    pub(crate) unsafe fn post(&self, id: u64, work: QueuePairWork, how: Posting) -> io::Result<()> {
        let nothing = LocalMemory {
            address: 0,
            bytes: 0,
            key: 0,
        };
        let (opcode, local, immediate) = match work {
            QueuePairWork::Write(local, _) => (0, local, 0),
            QueuePairWork::WriteAndNotify(local, _, number) => (1, local, number),
            QueuePairWork::Notify(number) => (1, nothing, number),
            QueuePairWork::Read(local, _) => (4, local, 0),
            QueuePairWork::Atomic(local, _, AtomicOp::CompareSwap { .. }) => (5, local, 0),
            QueuePairWork::Atomic(local, _, AtomicOp::FetchAdd(_)) => (6, local, 0),
        };
        let mut piece = raw::ScatterGather {
            address: local.address,
            length: local.bytes,
            lkey: local.key,
        };
        let mut request = raw::SendRequest {
            id,
            next: ptr::null_mut(),
            pieces: &mut piece,
            piece_count: c_int::from(local.bytes > 0),
            opcode,
            flags: u32::from(how.fenced)
                | (u32::from(how.signaled) << 1)
                | (u32::from(how.inline) << 3),
            immediate: immediate.to_be(),
            remote: remote(work),
            qp_type: 0,
            extension: [0; 6],
        };
        let mut refused = ptr::null_mut();
        let post = self.operations().post_send;
        // SAFETY: the pair is alive, request and piece are copied; the rest is the caller's
        // promise.
        check("ibv_post_send", unsafe {
            post(self.pair.as_ptr(), &mut request, &mut refused)
        })
    }

    fn operations(&self) -> &raw::ContextOps {
        // SAFETY: the device keeps its context open.
        unsafe { &(*self.device.context()).ops }
    }
}

impl Drop for QueuePair {
    /// No memory of its requests is accessed afterwards, here or by its peer.
    fn drop(&mut self) {
        if self.device.is_own() {
            // SAFETY: made by the library, and not used afterwards.
            unsafe { (self.device.verbs.ibv_destroy_qp)(self.pair.as_ptr()) };
        }
    }
}

fn remote(work: QueuePairWork) -> raw::RemoteOperand {
    match work {
        QueuePairWork::Notify(_) => raw::RemoteOperand {
            rdma: raw::RdmaOperand {
                address: 0,
                rkey: 0,
            },
        },
        QueuePairWork::Write(_, remote)
        | QueuePairWork::WriteAndNotify(_, remote, _)
        | QueuePairWork::Read(_, remote) => raw::RemoteOperand {
            rdma: raw::RdmaOperand {
                address: remote.address,
                rkey: remote.key,
            },
        },
        QueuePairWork::Atomic(_, remote, op) => {
            let (compare_add, swap) = match op {
                AtomicOp::FetchAdd(value) => (value, 0),
                AtomicOp::CompareSwap { expected, new } => (expected, new),
            };
            raw::RemoteOperand {
                atomic: raw::AtomicOperand {
                    address: remote.address,
                    compare_add,
                    swap,
                    rkey: remote.key,
                },
            }
        }
    }
}
