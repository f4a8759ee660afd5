//! Separately registered memory, for puts to read.

use std::sync::Arc;

use super::memory::pattern;
use super::{LinkPair, Subject};
use crate::{DeviceMemory, must_take_device_memory};
use weft_transport::{
    Iovec, LinkError, MemoryRegistration, POOL_HEADER, RegionKey, RegistrationKey, Signal,
};

const FLAG: u64 = POOL_HEADER;
const DATA: u64 = POOL_HEADER + 4096;

fn signal(value: u64) -> Option<Signal> {
    Some(Signal {
        offset: FLAG,
        value,
    })
}

/// Memory of this process outside any segment. It begins and ends within pages.
struct Private(Vec<u8>);

impl Private {
    fn new(seed: u64, len: usize) -> Private {
        Private(pattern(seed, len))
    }

    /// A part of it as a source for puts.
    fn piece(&self, start: usize, len: usize, key: Option<RegistrationKey>) -> Iovec {
        let part = &self.0[start..start + len];
        // SAFETY: the cases keep the memory until their puts are complete and registrations ended.
        let piece = unsafe { Iovec::new(part.as_ptr(), len) };
        key.map_or(piece, |key| piece.registered(key))
    }
}

fn registration(pair: &LinkPair) -> Option<Arc<dyn MemoryRegistration>> {
    let registration = Arc::clone(&pair.a.transport).registration();
    let needed = pair.a.link.capabilities().needs_registration;
    assert_eq!(registration.is_some(), needed);
    registration
}

fn register(pair: &LinkPair, memory: Iovec) -> Option<RegistrationKey> {
    registration(pair).map(|transport| transport.register(memory).expect("a registration"))
}

fn deregister(pair: &LinkPair, key: RegistrationKey) {
    let transport = registration(pair).expect("what has given the key");
    transport.deregister(key);
}

/// From any place in it, in pieces, with the contents at the time of the call.
pub fn registered_memory_is_read_at_its_address(subject: &Subject) {
    let mut pair = LinkPair::new(subject);
    // More than adapters take in one message.
    let mut memory = Private::new(1, 9 << 20);
    let key = register(&pair, memory.piece(0, memory.0.len(), None));
    let all = [memory.piece(0, memory.0.len(), key)];
    pair.complete("a put", |link| {
        link.put(RegionKey::POOL, DATA, &all, signal(1))
    });
    pair.until_signalled(FLAG, 1);
    assert!(pair.b.bytes(DATA..DATA + (9 << 20)) == memory.0);
    memory.0[5000..5100].fill(7);
    let parts = [memory.piece(4999, 102, key), memory.piece(77, 1, key)];
    pair.complete("a put of parts", |link| {
        link.put(RegionKey::POOL, DATA, &parts, signal(2))
    });
    pair.until_signalled(FLAG, 2);
    let expected = [&memory.0[4999..5101], &memory.0[77..78]].concat();
    assert_eq!(pair.b.bytes(DATA..DATA + 103), expected);
    key.into_iter().for_each(|key| deregister(&pair, key));
}

/// Memory that cannot be written, such as an array that is mapped read-only from a file.
pub fn read_only_memory_can_be_registered(subject: &Subject) {
    static CONSTANT: [u8; 5000] = [9; 5000];
    let mut pair = LinkPair::new(subject);
    // SAFETY: it is a static.
    let memory = unsafe { Iovec::new(CONSTANT.as_ptr(), CONSTANT.len()) };
    let key = register(&pair, memory);
    let source = [key.map_or(memory, |key| memory.registered(key))];
    pair.complete("a put", |link| {
        link.put(RegionKey::POOL, DATA, &source, signal(1))
    });
    pair.until_signalled(FLAG, 1);
    assert_eq!(pair.b.bytes(DATA..DATA + 5000), CONSTANT);
    key.into_iter().for_each(|key| deregister(&pair, key));
}

/// Neither beyond its ends nor after its end: the put is rejected, and the link stays usable.
pub fn a_registration_allows_no_more_than_its_memory(subject: &Subject) {
    let mut pair = LinkPair::new(subject);
    let memory = Private::new(2, 64 << 10);
    let Some(key) = register(&pair, memory.piece(8192, 8192, None)) else {
        return;
    };
    let refused = |pair: &LinkPair, start, len| {
        let piece = [memory.piece(start, len, Some(key))];
        let put = pair.a.link.put(RegionKey::POOL, DATA, &piece, signal(1));
        assert!(matches!(put, Err(LinkError::Unregistered)), "{put:?}");
    };
    for (start, len) in [(8191, 8), (16_380, 8), (0, 64 << 10), (30_000, 8)] {
        refused(&pair, start, len);
    }
    let inside = [memory.piece(8192, 8192, Some(key))];
    pair.complete("a put", |link| {
        link.put(RegionKey::POOL, DATA, &inside, signal(2))
    });
    pair.until_signalled(FLAG, 2);
    deregister(&pair, key);
    refused(&pair, 8192, 8192);
    pair.put(DATA, &[&[3; 8]], signal(3));
    pair.until_signalled(FLAG, 3);
}

/// Memory may be registered several times, whole or in part; each registration is separate.
pub fn registrations_of_one_memory_end_separately(subject: &Subject) {
    let mut pair = LinkPair::new(subject);
    let memory = Private::new(3, 32 << 10);
    let keys = [(0, 32 << 10), (0, 32 << 10), (5000, 9000)]
        .map(|(start, len)| register(&pair, memory.piece(start, len, None)));
    let [Some(first), Some(second), Some(part)] = keys else {
        return;
    };
    assert!(first != second && second != part && part != first);
    deregister(&pair, first);
    deregister(&pair, part);
    let source = [memory.piece(6000, 1000, Some(second))];
    pair.complete("a put", |link| {
        link.put(RegionKey::POOL, DATA, &source, signal(1))
    });
    pair.until_signalled(FLAG, 1);
    assert!(pair.b.bytes(DATA..DATA + 1000) == memory.0[6000..7000]);
    deregister(&pair, second);
}

/// Adapters read device memory through its file, where they support that. Other transports reject
/// it, and the link stays usable.
pub fn device_memory_is_read_through_its_file(subject: &Subject) {
    const LEN: usize = (9 << 20) + 77;
    let mut pair = LinkPair::new(subject);
    let bytes = pattern(3, LEN);
    let device = DeviceMemory::new(&bytes);
    let piece = |start, len| {
        // SAFETY: adapters read its file, which lives until the case is over.
        unsafe { Iovec::new(device.at(start), len) }
    };
    let key = registration(&pair)
        .map(|transport| transport.register_device(piece(0, LEN), device.file()));
    let key = match key {
        Some(Ok(key)) => key,
        refused => {
            let kind = pair.a.link.kind();
            assert!(!must_take_device_memory(kind), "{kind}: {refused:?}");
            pair.put(DATA, &[&[3; 8]], signal(1));
            return pair.until_signalled(FLAG, 1);
        }
    };
    let parts = [(0, LEN), (4999, 102), (LEN - 1, 1)];
    for (number, (start, len)) in (1..).zip(parts) {
        let source = [piece(start, len).registered(key)];
        pair.complete("a put", |link| {
            link.put(RegionKey::POOL, DATA, &source, signal(number))
        });
        pair.until_signalled(FLAG, number);
        let found = pair.b.bytes(DATA..DATA + len as u64);
        assert!(found == bytes[start..start + len], "{len} from {start} on");
    }
    let beyond = [piece(LEN - 1, 2).registered(key)];
    let refused = pair.a.link.put(RegionKey::POOL, DATA, &beyond, None);
    assert!(matches!(refused, Err(LinkError::Unregistered)));
    deregister(&pair, key);
}
