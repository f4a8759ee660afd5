//! An open device, with the protection domain of its memory and queues.

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, RawFd};
use std::ptr::NonNull;
use std::sync::Arc;

use weft_transport::LinkError;
use weft_transport::fork::{self, Descriptor};

use super::library::{Verbs, text};
use super::structures::{Context, Device, DeviceAttributes, PortAttributes, ProtectionDomain};
use super::{check, made};

/// The most reads and atomics of one peer that a queue pair has under way.
const READS_MAX: u8 = 16;

/// An open device. Every object made from it keeps it open.
pub(crate) struct OpenDevice {
    pub(crate) verbs: &'static Verbs,
    domain: NonNull<ProtectionDomain>,
    /// Before the context: it closes nothing, but must be removed first.
    _events: Descriptor<EventDescriptor>,
    context: Descriptor<OpenContext>,
    reads: u8,
    has_atomics: bool,
    generation: u64,
}

// SAFETY: the library's functions may be called from any thread.
unsafe impl Send for OpenDevice {}
// SAFETY: as above.
unsafe impl Sync for OpenDevice {}

impl OpenDevice {
    /// Opens the device of this name.
    pub(crate) fn open(name: &str) -> Result<Arc<OpenDevice>, LinkError> {
        let verbs = Verbs::get().map_err(|why| LinkError::Setup(why.into()))?;
        let context = Descriptor::make_in_place(|| OpenContext::open(verbs, name))?;
        let events = EventDescriptor(context.get().async_fd);
        let events = Descriptor::make_in_place(|| Ok(events))?;
        // SAFETY: the context is open.
        let attributes = unsafe { attributes(verbs, context.raw()) }?;
        let reads = attributes.max_reads.min(attributes.max_peer_reads);
        // Last: earlier failures leave no domain behind.
        // SAFETY: the context is open.
        let domain = made("ibv_alloc_pd", unsafe {
            (verbs.ibv_alloc_pd)(context.raw())
        })?;
        Ok(Arc::new(OpenDevice {
            verbs,
            domain,
            _events: events,
            context,
            reads: reads.clamp(1, READS_MAX.into()) as u8,
            has_atomics: attributes.atomics != 0,
            generation: fork::generation(),
        }))
    }

    /// The most reads and atomics that a queue pair may have under way, each way.
    pub(crate) fn reads(&self) -> u8 {
        self.reads
    }

    /// Whether it supports atomics on peers' memory.
    pub(crate) fn has_atomics(&self) -> bool {
        self.has_atomics
    }

    /// The current state of a port.
    pub(crate) fn port(&self, number: u8) -> io::Result<PortAttributes> {
        let mut attributes = PortAttributes::default();
        // SAFETY: the context is open, and the structure is as large as the library's.
        let result =
            unsafe { (self.verbs.ibv_query_port)(self.context(), number, &mut attributes) };
        check("ibv_query_port", result).map(|()| attributes)
    }

    pub(crate) fn context(&self) -> *mut Context {
        self.context.raw()
    }

    pub(crate) fn domain(&self) -> *mut ProtectionDomain {
        self.domain.as_ptr()
    }

    /// Whether this is the process that has opened it: in a forked child everything is the
    /// parent's, and the descriptors are void.
    pub(crate) fn is_own(&self) -> bool {
        self.generation == fork::generation()
    }
}

impl Drop for OpenDevice {
    fn drop(&mut self) {
        if self.is_own() {
            // SAFETY: no object made from it is left, since each of them keeps the device.
            unsafe { (self.verbs.ibv_dealloc_pd)(self.domain()) };
        }
    }
}

/// The library's context of a device, with the descriptor of its commands.
struct OpenContext {
    verbs: &'static Verbs,
    context: NonNull<Context>,
    generation: u64,
}

impl OpenContext {
    fn open(verbs: &'static Verbs, name: &str) -> io::Result<OpenContext> {
        let context = with_devices(verbs, |devices| {
            let device = devices.iter().find(|(known, _)| known == name);
            let device = device.ok_or_else(|| {
                let known: Vec<_> = devices.iter().map(|(name, _)| name.as_str()).collect();
                let text = format!("no RDMA device is called {name}; this host has: {known:?}");
                io::Error::new(io::ErrorKind::NotFound, text)
            })?;
            // SAFETY: the device is in the list, which is not freed yet.
            made("ibv_open_device", unsafe {
                (verbs.ibv_open_device)(device.1)
            })
        })??;
        Ok(OpenContext {
            verbs,
            context,
            generation: fork::generation(),
        })
    }

    fn raw(&self) -> *mut Context {
        self.context.as_ptr()
    }

    fn get(&self) -> &Context {
        // SAFETY: the library made it, and it is open as long as this value lives.
        unsafe { self.context.as_ref() }
    }
}

impl AsFd for OpenContext {
    fn as_fd(&self) -> BorrowedFd<'_> {
        // SAFETY: open until the context is closed.
        unsafe { BorrowedFd::borrow_raw(self.get().cmd_fd) }
    }
}

impl Drop for OpenContext {
    fn drop(&mut self) {
        if self.generation == fork::generation() {
            // SAFETY: no object of it is in use any more.
            unsafe { (self.verbs.ibv_close_device)(self.raw()) };
        }
    }
}

/// The descriptor by which a device reports events, which its context closes.
struct EventDescriptor(RawFd);

impl AsFd for EventDescriptor {
    fn as_fd(&self) -> BorrowedFd<'_> {
        // SAFETY: it is dropped before the context.
        unsafe { BorrowedFd::borrow_raw(self.0) }
    }
}

/// # Safety
/// The context is open.
unsafe fn attributes(verbs: &Verbs, context: *mut Context) -> io::Result<DeviceAttributes> {
    let mut attributes = std::mem::MaybeUninit::zeroed();
    // SAFETY: the caller's promise, and the structure is as large as the library's.
    check("ibv_query_device", unsafe {
        (verbs.ibv_query_device)(context, attributes.as_mut_ptr())
    })?;
    // SAFETY: numbers, zero where nothing was written.
    Ok(unsafe { attributes.assume_init() })
}

/// Calls `act` with the devices that the library knows and their names.
pub(super) fn with_devices<T>(
    verbs: &Verbs,
    act: impl FnOnce(&[(String, *mut Device)]) -> T,
) -> io::Result<T> {
    let mut count = 0;
    // SAFETY: the count is written.
    let list = made("ibv_get_device_list", unsafe {
        (verbs.ibv_get_device_list)(&mut count)
    })?;
    // SAFETY: the list has as many entries as was counted.
    let devices = unsafe { std::slice::from_raw_parts(list.as_ptr(), count.max(0) as usize) };
    let named = devices.iter().map(|device| {
        // SAFETY: the device is in the list.
        let name = unsafe { (verbs.ibv_get_device_name)(*device) };
        // SAFETY: the library returns a NUL-terminated string of the device.
        (text(unsafe { CStr::from_ptr(name) }), *device)
    });
    let named: Vec<_> = named.collect();
    let result = act(&named);
    // SAFETY: made above; no entry is kept.
    unsafe { (verbs.ibv_free_device_list)(list.as_ptr()) };
    Ok(result)
}
