//! The queue of a queue pair's completions, and the descriptor that reports them.

use std::ffi::c_int;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::ptr::{self, NonNull};
use std::sync::Arc;

use weft_transport::checked;
use weft_transport::fork::Descriptor;

use super::structures as raw;
use super::{OpenDevice, check, made};

/// The most completions that are taken in one call.
const BATCH: usize = 32;

/// A completion of a queue pair.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Completed {
    /// Everything sent up to this number.
    Sent(u64),
    /// A write with this immediate has arrived.
    Arrived(u32),
    /// The connection has failed, with this status.
    Failed(c_int),
}

/// The completion queue of one queue pair, and the descriptor that reports completions.
pub(crate) struct CompletionQueue {
    pub(super) queue: NonNull<raw::RawCompletionQueue>,
    channel: Descriptor<EventChannel>,
    pub(super) device: Arc<OpenDevice>,
}

// SAFETY: the library's functions may be called from any thread.
unsafe impl Send for CompletionQueue {}
// SAFETY: as above.
unsafe impl Sync for CompletionQueue {}

impl CompletionQueue {
    /// A queue for this many completions, which reports the first.
    pub(crate) fn new(device: &Arc<OpenDevice>, room: usize) -> io::Result<CompletionQueue> {
        let channel = Descriptor::make_in_place(|| EventChannel::new(device))?;
        let create = device.verbs.ibv_create_cq;
        // SAFETY: context and channel are open.
        let queue = unsafe {
            create(
                device.context(),
                room as c_int,
                ptr::null_mut(),
                channel.channel.as_ptr(),
                0,
            )
        };
        let queue = CompletionQueue {
            queue: made("ibv_create_cq", queue)?,
            channel,
            device: Arc::clone(device),
        };
        queue.request_event()?;
        Ok(queue)
    }

    /// Takes one batch of completions. Returns whether there may be more.
    pub(crate) fn poll(&self, mut each: impl FnMut(Completed)) -> io::Result<bool> {
        let mut taken = [raw::WorkCompletion::default(); BATCH];
        let poll = self.operations().poll_cq;
        // SAFETY: the array has room for as many as are requested.
        let count = unsafe { poll(self.queue.as_ptr(), BATCH as c_int, taken.as_mut_ptr()) };
        if count < 0 {
            return Err(io::Error::other(
                "the RDMA device's completion queue failed",
            ));
        }
        /// `IBV_WC_RECV`, a bit of what was received.
        const RECEIVED: c_int = 1 << 7;
        for completion in &taken[..count as usize] {
            each(match completion.status {
                0 if completion.opcode & RECEIVED != 0 => {
                    Completed::Arrived(u32::from_be(completion.immediate))
                }
                0 => Completed::Sent(completion.id),
                status => Completed::Failed(status),
            });
        }
        Ok(count as usize == BATCH)
    }

    /// If the descriptor is ready, makes it report the next completion again. The caller must poll
    /// afterwards.
    pub(crate) fn rearm(&self) -> io::Result<()> {
        let (mut queue, mut context) = (ptr::null_mut(), ptr::null_mut());
        let mut taken = false;
        let take = self.device.verbs.ibv_get_cq_event;
        // SAFETY: the channel is open, and never blocks; the pointers are written.
        while unsafe { take(self.channel.channel.as_ptr(), &mut queue, &mut context) } == 0 {
            // SAFETY: the event was of this queue, the channel's only one.
            unsafe { (self.device.verbs.ibv_ack_cq_events)(self.queue.as_ptr(), 1) };
            taken = true;
        }
        match taken {
            true => self.request_event(),
            false => Ok(()),
        }
    }

    fn request_event(&self) -> io::Result<()> {
        // SAFETY: the queue is alive.
        check("ibv_req_notify_cq", unsafe {
            (self.operations().req_notify_cq)(self.queue.as_ptr(), 0)
        })
    }

    fn operations(&self) -> &raw::ContextOps {
        // SAFETY: the device keeps its context open.
        unsafe { &(*self.device.context()).ops }
    }
}

impl AsFd for CompletionQueue {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.channel.as_fd()
    }
}

impl Drop for CompletionQueue {
    fn drop(&mut self) {
        if self.device.is_own() {
            // SAFETY: its queue pair is gone, and all events are acknowledged.
            unsafe { (self.device.verbs.ibv_destroy_cq)(self.queue.as_ptr()) };
        }
    }
}

/// The library's completion channel.
struct EventChannel {
    channel: NonNull<raw::CompletionChannel>,
    device: Arc<OpenDevice>,
}

impl EventChannel {
    fn new(device: &Arc<OpenDevice>) -> io::Result<EventChannel> {
        // SAFETY: the context is open.
        let channel = unsafe { (device.verbs.ibv_create_comp_channel)(device.context()) };
        let channel = EventChannel {
            channel: made("ibv_create_comp_channel", channel)?,
            device: Arc::clone(device),
        };
        // SAFETY: plain system call on a descriptor that is open.
        let flags = unsafe { libc::fcntl(channel.descriptor(), libc::F_GETFL) };
        // SAFETY: as above.
        let set = unsafe {
            libc::fcntl(
                channel.descriptor(),
                libc::F_SETFL,
                flags | libc::O_NONBLOCK,
            )
        };
        checked("fcntl(F_SETFL)", set).map(|_| channel)
    }

    fn descriptor(&self) -> c_int {
        // SAFETY: made by the library, and alive until this is dropped.
        unsafe { self.channel.as_ref() }.fd
    }
}

impl AsFd for EventChannel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        // SAFETY: open until the channel is destroyed.
        unsafe { BorrowedFd::borrow_raw(self.descriptor()) }
    }
}

impl Drop for EventChannel {
    fn drop(&mut self) {
        if self.device.is_own() {
            // SAFETY: its queue is gone.
            unsafe { (self.device.verbs.ibv_destroy_comp_channel)(self.channel.as_ptr()) };
        }
    }
}
