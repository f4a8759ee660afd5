//! Memory that a device may access.

use std::io;
use std::os::fd::AsRawFd;
use std::ptr::NonNull;
use std::sync::Arc;

use weft_transport::{DmaBuf, Iovec, LinkError, Segment, os_code};

use super::structures::MemoryRegion;
use super::{OpenDevice, PeerMemory, made};

/// The permitted access to registered memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum MemoryAccess {
    /// This process's queues, read.
    Source,
    /// This process's queues, read and write.
    Own,
    /// Also the peer that has the key: writes, reads and atomics.
    Peer,
}

impl MemoryAccess {
    const LOCAL_WRITE: i32 = 1;
    const REMOTE_WRITE: i32 = 1 << 1;
    const REMOTE_READ: i32 = 1 << 2;
    const REMOTE_ATOMIC: i32 = 1 << 3;

    fn flags(self) -> i32 {
        match self {
            MemoryAccess::Source => 0,
            MemoryAccess::Own => Self::LOCAL_WRITE,
            MemoryAccess::Peer => {
                Self::LOCAL_WRITE | Self::REMOTE_WRITE | Self::REMOTE_READ | Self::REMOTE_ATOMIC
            }
        }
    }
}

/// Memory that a device may access, as long as this value exists.
pub(crate) struct DeviceRegistration {
    region: NonNull<MemoryRegion>,
    start: u64,
    /// The segment that it is a part of, if it is kept here. In this order: the registration ends
    /// before its memory and its device.
    _segment: Option<Arc<Segment>>,
    device: Arc<OpenDevice>,
}

// SAFETY: the library's functions may be called from any thread; the keys do not change.
unsafe impl Send for DeviceRegistration {}
// SAFETY: as above.
unsafe impl Sync for DeviceRegistration {}

impl DeviceRegistration {
    /// Registers bytes of a segment, which pins them.
    pub(crate) fn register(
        device: &Arc<OpenDevice>,
        segment: &Arc<Segment>,
        range: &std::ops::Range<u64>,
        access: MemoryAccess,
    ) -> io::Result<DeviceRegistration> {
        let beyond = || {
            io::Error::new(
                io::ErrorKind::InvalidInput,
                "the range extends beyond its segment",
            )
        };
        let start = segment.at(range).ok_or_else(beyond)?;
        let len = (range.end - range.start) as usize;
        // SAFETY: the bytes are in the segment, which lives as long as the registration.
        let bytes = unsafe { Iovec::new(start.as_ptr(), len) };
        Self::of(device, (bytes, Some(segment)), access)
    }

    /// Registers memory of this process as a source for puts, which pins it.
    pub(crate) fn source(device: &Arc<OpenDevice>, bytes: Iovec) -> io::Result<DeviceRegistration> {
        Self::of(device, (bytes, None), MemoryAccess::Source)
    }

    /// Registers device memory, which the adapter accesses through a file.
    pub(crate) fn of_device(
        device: &Arc<OpenDevice>,
        (start, len): (u64, usize),
        file: DmaBuf<'_>,
    ) -> io::Result<DeviceRegistration> {
        let unknown = || io::Error::from_raw_os_error(libc::EOPNOTSUPP);
        let register = device.verbs.ibv_reg_dmabuf_mr.ok_or_else(unknown)?;
        let (domain, file_number) = (device.domain(), file.file.as_raw_fd());
        let access = MemoryAccess::Source.flags();
        // SAFETY: the file is open; the caller that named the memory keeps it until the
        // registration has ended, and the kernel its own reference to the file.
        let region = unsafe { register(domain, file.offset, len, start, file_number, access) };
        Ok(DeviceRegistration {
            region: made("ibv_reg_dmabuf_mr", region)?,
            start,
            _segment: None,
            device: Arc::clone(device),
        })
    }

    fn of(
        device: &Arc<OpenDevice>,
        (bytes, segment): (Iovec, Option<&Arc<Segment>>),
        access: MemoryAccess,
    ) -> io::Result<DeviceRegistration> {
        let register = device.verbs.ibv_reg_mr;
        let (start, len) = (bytes.start().cast_mut(), bytes.len());
        // SAFETY: the caller that named the bytes keeps them mapped until the registration has
        // ended; registering reads and writes nothing.
        let region = unsafe { register(device.domain(), start.cast(), len, access.flags()) };
        Ok(DeviceRegistration {
            region: made("ibv_reg_mr", region).map_err(|error| explain(error, len))?,
            start: start as u64,
            _segment: segment.cloned(),
            device: Arc::clone(device),
        })
    }

    /// The address of the first byte.
    pub(crate) fn start(&self) -> u64 {
        self.start
    }

    /// Its key for this process's queues.
    pub(crate) fn local_key(&self) -> u32 {
        // SAFETY: made by the library, and freed on drop only.
        unsafe { self.region.as_ref() }.lkey
    }

    /// Its address and key for the peer's queues.
    pub(crate) fn for_peer(&self) -> PeerMemory {
        PeerMemory {
            address: self.start,
            // SAFETY: as above.
            key: unsafe { self.region.as_ref() }.rkey,
        }
    }
}

impl Drop for DeviceRegistration {
    fn drop(&mut self) {
        if self.device.is_own() {
            // SAFETY: made by the library, and not used afterwards.
            unsafe { (self.device.verbs.ibv_dereg_mr)(self.region.as_ptr()) };
        }
    }
}

/// Tries to register bytes of another device's memory, from an address on, with the RDMA device of
/// this name, and ends the registration.
///
/// # Errors
/// [`LinkError::Setup`] or [`LinkError::Io`] if the device cannot be opened, or cannot register
/// such memory.
pub fn try_device_memory(
    name: &str,
    (start, len): (u64, usize),
    file: DmaBuf<'_>,
) -> Result<(), LinkError> {
    let device = OpenDevice::open(name)?;
    DeviceRegistration::of_device(&device, (start, len), file)?;
    Ok(())
}

fn explain(error: io::Error, len: usize) -> io::Error {
    match os_code(&error) {
        Some(libc::ENOMEM | libc::EAGAIN | libc::EPERM) => io::Error::new(
            error.kind(),
            format!(
                "{len} bytes cannot be registered with the RDMA device: {error}. \
                 Raise the limit of locked memory (ulimit -l unlimited)"
            ),
        ),
        _ => error,
    }
}
