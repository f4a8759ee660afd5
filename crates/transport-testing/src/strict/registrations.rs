//! Memory that an endpoint has registered besides its regions.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Mutex;

use weft_transport::fork::Descriptor;
use weft_transport::{DmaBuf, Iovec, LinkError, RegistrationKey, Segment};

use super::lock::locked;

/// The current registrations.
#[derive(Default)]
pub(super) struct StrictRegistrations(Mutex<KnownRegistrations>);

#[derive(Default)]
struct KnownRegistrations {
    next: u64,
    entries: BTreeMap<RegistrationKey, RegisteredEntry>,
}

struct RegisteredEntry {
    range: Range<usize>,
    /// For device memory: the segment and offset that the adapter reads.
    device: Option<(Segment, u64)>,
}

impl StrictRegistrations {
    pub(super) fn register(&self, memory: Iovec) -> RegistrationKey {
        self.add(memory, None)
    }

    /// Registers memory of a device, which must be a segment's.
    pub(super) fn register_device(
        &self,
        memory: Iovec,
        file: DmaBuf<'_>,
    ) -> Result<RegistrationKey, LinkError> {
        let segment = Segment::map(Descriptor::make(|| file.file.try_clone_to_owned())?)?;
        let end = file.offset.checked_add(memory.len() as u64);
        if !end.is_some_and(|end| segment.contains(&(file.offset..end))) {
            return Err(LinkError::Refused(
                "the range extends beyond the end of its file".into(),
            ));
        }
        Ok(self.add(memory, Some((segment, file.offset))))
    }

    fn add(&self, memory: Iovec, device: Option<(Segment, u64)>) -> RegistrationKey {
        let mut known = locked(&self.0);
        known.next += 1;
        let key = RegistrationKey(known.next);
        let range = range(memory);
        known.entries.insert(key, RegisteredEntry { range, device });
        key
    }

    pub(super) fn deregister(&self, key: RegistrationKey) {
        locked(&self.0).entries.remove(&key);
    }

    /// Whether memory is within the registration of a key.
    pub(super) fn covers(&self, key: RegistrationKey, memory: Iovec) -> bool {
        let memory = range(memory);
        let known = locked(&self.0);
        let entry = known.entries.get(&key);
        entry
            .is_some_and(|entry| entry.range.start <= memory.start && memory.end <= entry.range.end)
    }

    /// Calls `read` with the address of a source, which [is registered](Self::covers).
    pub(super) fn read(&self, source: Iovec, read: impl FnOnce(*const u8)) {
        let known = locked(&self.0);
        let entry = source
            .registration()
            .and_then(|key| known.entries.get(&key));
        let device = entry.and_then(|entry| Some((entry, entry.device.as_ref()?)));
        read(match device {
            None => source.start(),
            Some((entry, (segment, offset))) => {
                let within = source.start() as usize - entry.range.start;
                let base: *const u8 = segment.base().as_ptr();
                base.wrapping_add(*offset as usize + within)
            }
        });
    }
}

fn range(memory: Iovec) -> Range<usize> {
    let start = memory.start() as usize;
    start..start + memory.len()
}
