//! Memory that is registered with adapters. See [Note: Registered memory] in `registrations.rs`.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use weft_transport::{
    DmaBuf, Iovec, LinkError, MemoryRegistration, RegistrationKey, TransportKind, fork,
};

/// Memory that is registered with transports until this is dropped.
pub struct RegisteredMemory {
    keys: Vec<(Arc<dyn MemoryRegistration>, RegistrationKey)>,
    range: Range<usize>,
    /// Whether it is memory of a device. See [Note: Memory of devices].
    is_device: bool,
    /// The process (counted in forks) that has registered it.
    generation: u64,
}

impl fmt::Debug for RegisteredMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "registered {:#x?}", self.range)
    }
}

impl RegisteredMemory {
    /// Registers memory with transports; that of a device by its file.
    ///
    /// # Errors
    ///
    /// The error of the first transport that refuses it.
    pub fn new(
        transports: &[Arc<dyn MemoryRegistration>],
        memory: Iovec,
        file: Option<DmaBuf<'_>>,
    ) -> Result<RegisteredMemory, LinkError> {
        let mut registered = RegisteredMemory {
            keys: Vec::with_capacity(transports.len()),
            range: range_of(memory),
            is_device: file.is_some(),
            generation: fork::generation(),
        };
        for transport in transports.iter().filter(|_| !memory.is_empty()) {
            let key = match file {
                None => transport.register(memory)?,
                Some(file) => transport.register_device(memory, file)?,
            };
            registered.keys.push((Arc::clone(transport), key));
        }
        Ok(registered)
    }

    /// Whether it is memory of a device.
    pub(super) fn is_device(&self) -> bool {
        self.is_device
    }

    /// The kinds of links that read it in place, and only because it is registered.
    pub fn kinds(&self) -> impl Iterator<Item = TransportKind> {
        self.keys.iter().map(|(transport, _)| transport.kind())
    }

    /// A piece of it with the key for puts over links of this kind; `None` if it is not within it.
    pub fn named(&self, kind: TransportKind, piece: Iovec) -> Option<Iovec> {
        let within = range_of(piece);
        if within.start < self.range.start || self.range.end < within.end {
            return None;
        }
        let mut keys = self.keys.iter();
        let of_kind = keys.find(|(transport, _)| transport.kind() == kind);
        of_kind.map(|(_, key)| piece.registered(*key))
    }
}

impl Drop for RegisteredMemory {
    /// Does nothing in a forked child: adapters have registered the parent's memory.
    fn drop(&mut self) {
        if self.generation != fork::generation() {
            return;
        }
        for (transport, key) in &self.keys {
            transport.deregister(*key);
        }
    }
}

pub(super) fn range_of(memory: Iovec) -> Range<usize> {
    let start = memory.start() as usize;
    start..start + memory.len()
}

/// A piece that a link reads, and the registration that must last until then.
pub type RegisteredPiece = (Iovec, Arc<RegisteredMemory>);
