//! Memory that a device may reach.

use std::io;
use std::os::fd::AsRawFd;
use std::ptr::NonNull;
use std::sync::Arc;

use weft_transport::{DmaBuf, Iovec, LinkError, Segment, os_code};

use super::structures::MemoryRegion;
use super::{OpenDevice, PeerMemory, made};

/// Who may do what with registered memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Access {
    /// The own queues, read.
    Source,
    /// The own queues, read and write.
    Own,
    /// The peer that has the key too: writes, reads and atomics.
    Peer,
}

impl Access {
    const LOCAL_WRITE: i32 = 1;
    const REMOTE_WRITE: i32 = 1 << 1;
    const REMOTE_READ: i32 = 1 << 2;
    const REMOTE_ATOMIC: i32 = 1 << 3;

    fn flags(self) -> i32 {
        match self {
            Access::Source => 0,
            Access::Own => Self::LOCAL_WRITE,
            Access::Peer => {
                Self::LOCAL_WRITE | Self::REMOTE_WRITE | Self::REMOTE_READ | Self::REMOTE_ATOMIC
            }
        }
    }
}

/// Memory that a device may reach, as long as this lives.
pub(crate) struct RegisteredMemory {
    region: NonNull<MemoryRegion>,
    start: u64,
    /// What it is a part of, if that is kept here. In this order: the region ends before its memory
    /// and its device.
    _segment: Option<Arc<Segment>>,
    device: Arc<OpenDevice>,
}

// SAFETY: the library's functions may be called from any thread; the keys do not change.
unsafe impl Send for RegisteredMemory {}
// SAFETY: as above.
unsafe impl Sync for RegisteredMemory {}

impl RegisteredMemory {
    /// Registers bytes of a segment, which pins them. Fails where the process may not pin so much.
    pub(crate) fn register(
        device: &Arc<OpenDevice>,
        segment: &Arc<Segment>,
        range: &std::ops::Range<u64>,
        access: Access,
    ) -> io::Result<RegisteredMemory> {
        let beyond = || io::Error::new(io::ErrorKind::InvalidInput, "a range beyond its segment");
        let start = segment.at(range).ok_or_else(beyond)?;
        let len = (range.end - range.start) as usize;
        // SAFETY: the bytes lie in the segment, which lives as long as the registration.
        let bytes = unsafe { Iovec::new(start.as_ptr(), len) };
        Self::of(device, (bytes, Some(segment)), access)
    }

    /// Registers memory of this process's for puts to read, which pins it.
    pub(crate) fn source(device: &Arc<OpenDevice>, bytes: Iovec) -> io::Result<RegisteredMemory> {
        Self::of(device, (bytes, None), Access::Source)
    }

    /// The same for memory of a device, which the adapter reaches by a file. Fails where it cannot.
    pub(crate) fn of_device(
        device: &Arc<OpenDevice>,
        (start, len): (u64, usize),
        file: DmaBuf<'_>,
    ) -> io::Result<RegisteredMemory> {
        let unknown = || io::Error::from_raw_os_error(libc::EOPNOTSUPP);
        let register = device.verbs.ibv_reg_dmabuf_mr.ok_or_else(unknown)?;
        let (domain, file_number) = (device.domain(), file.file.as_raw_fd());
        let access = Access::Source.flags();
        // SAFETY: the file is open; whoever named the memory keeps it until the registration has
        // ended, and the kernel its own reference to the file.
        let region = unsafe { register(domain, file.offset, len, start, file_number, access) };
        Ok(RegisteredMemory {
            region: made("ibv_reg_dmabuf_mr", region)?,
            start,
            _segment: None,
            device: Arc::clone(device),
        })
    }

    fn of(
        device: &Arc<OpenDevice>,
        (bytes, segment): (Iovec, Option<&Arc<Segment>>),
        access: Access,
    ) -> io::Result<RegisteredMemory> {
        let register = device.verbs.ibv_reg_mr;
        let (start, len) = (bytes.start().cast_mut(), bytes.len());
        // SAFETY: whoever has named the bytes keeps them mapped until the registration has ended;
        // nothing is read or written by registering.
        let region = unsafe { register(device.domain(), start.cast(), len, access.flags()) };
        Ok(RegisteredMemory {
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

    /// What names it to the own queues.
    pub(crate) fn local_key(&self) -> u32 {
        // SAFETY: made by the library, and freed on drop only.
        unsafe { self.region.as_ref() }.lkey
    }

    /// What the peer's queues know it by.
    pub(crate) fn for_peer(&self) -> PeerMemory {
        PeerMemory {
            address: self.start,
            // SAFETY: as above.
            key: unsafe { self.region.as_ref() }.rkey,
        }
    }
}

impl Drop for RegisteredMemory {
    fn drop(&mut self) {
        if self.device.is_own() {
            // SAFETY: made by the library, and not used afterwards.
            unsafe { (self.device.verbs.ibv_dereg_mr)(self.region.as_ptr()) };
        }
    }
}

/// Registers bytes of another device's memory, from an address on, with the RDMA device of this
/// name, and takes that back: fails where it cannot be.
pub fn try_device_memory(
    name: &str,
    (start, len): (u64, usize),
    file: DmaBuf<'_>,
) -> Result<(), LinkError> {
    let device = OpenDevice::open(name)?;
    RegisteredMemory::of_device(&device, (start, len), file)?;
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
