//! Objects of RDMA verbs that free themselves.

mod completion;
mod device;
mod library;
mod memory;
mod port;
mod queue;
mod structures;

pub(crate) use completion::{Completed, CompletionQueue};
pub(crate) use device::OpenDevice;
pub(crate) use library::Verbs;
pub use memory::try_device_memory;
pub(crate) use memory::{DeviceRegistration, MemoryAccess};
pub use port::{Port, ports};
pub(crate) use queue::{
    LocalMemory, PeerMemory, Posting, QueuePair, QueuePairAddress, QueuePairWork, ServiceLevel,
};

use std::io;

use weft_transport::{failed, last_failure};

/// Checks the result of a call that returns an error number.
fn check(call: &'static str, result: std::ffi::c_int) -> io::Result<()> {
    match result {
        0 => Ok(()),
        // Some calls return -1 and set `errno`, as old libraries did.
        number if number < 0 => Err(last_failure(call)),
        number => Err(failed(call, io::Error::from_raw_os_error(number))),
    }
}

/// Checks the object that a call has made, which is null on failure.
fn made<T>(call: &'static str, object: *mut T) -> io::Result<std::ptr::NonNull<T>> {
    std::ptr::NonNull::new(object).ok_or_else(|| last_failure(call))
}
