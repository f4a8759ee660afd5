//! Timed operations: weft's collectives and messages, and functions of other libraries.

use std::ffi::c_int;
use std::sync::Arc;
use std::time::Duration;

use weft_runtime::{Call, Error, Group, Registration, Waited, Work};

/// An operation that can be called repeatedly on the same memory.
pub trait TimedOperation: Send {
    /// Executes it once.
    ///
    /// # Errors
    ///
    /// The error of the operation.
    fn call(&mut self) -> Result<(), String>;

    /// The part of the last call's time that counts; all of it by default.
    fn counted(&self, whole: Duration) -> Duration {
        whole
    }
}

/// A collective of weft, called as from Rust.
pub struct GroupCall {
    group: Arc<Group>,
    call: Call,
    /// Addresses and lengths of memory that is registered for each call.
    registered: Vec<(usize, u64)>,
}

impl GroupCall {
    /// A blocking call. Memory at these addresses, with these lengths, is registered before each
    /// call and deregistered afterwards.
    ///
    /// # Safety
    ///
    /// As long as this is called, the requirements of [`Group::issue`] and [`Group::register`]
    /// hold.
    pub unsafe fn new(group: Arc<Group>, call: Call, registered: Vec<(usize, u64)>) -> Self {
        Self {
            group,
            call,
            registered,
        }
    }

    fn register(&self) -> Result<Vec<Registration>, String> {
        let registered = self.registered.iter().map(|(start, bytes)| {
            // SAFETY: as `new` requires.
            let registered = unsafe { self.group.register(*start as *const u8, *bytes) };
            registered.map_err(|error| error.to_string())
        });
        registered.collect()
    }
}

impl TimedOperation for GroupCall {
    fn call(&mut self) -> Result<(), String> {
        let registered = self.register()?;
        // SAFETY: as `new` requires.
        let result = ended(unsafe { self.group.issue(self.call.clone(), false) });
        drop(registered);
        result
    }
}

/// A message of weft to another rank and one back, sent as from Rust.
pub struct PingPong {
    group: Arc<Group>,
    /// A rank without one does nothing.
    partner: Option<u32>,
    sent: *const u8,
    received: *mut u8,
    bytes: u64,
}

// SAFETY: the pointers are plain addresses; `PingPong::new` states the requirements on the memory.
unsafe impl Send for PingPong {}

impl PingPong {
    /// Blocking calls. The lower rank of two sends first.
    ///
    /// # Safety
    ///
    /// As long as this is called, `sent` can be read and `received` written for `bytes` bytes, and
    /// nothing else uses them.
    pub unsafe fn new(
        group: Arc<Group>,
        partner: Option<u32>,
        sent: *const u8,
        received: *mut u8,
        bytes: u64,
    ) -> Self {
        Self {
            group,
            partner,
            sent,
            received,
            bytes,
        }
    }

    fn send(&self, to: u32) -> Result<(), String> {
        // SAFETY: as `new` requires.
        ended(unsafe { self.group.send(to, 0, self.sent, self.bytes, None, false) })
    }

    fn receive(&self, from: u32) -> Result<(), String> {
        let received = self.received;
        // SAFETY: as above.
        ended(unsafe {
            self.group
                .receive(Some(from), 0, received, self.bytes, None, false)
        })
    }
}

impl TimedOperation for PingPong {
    fn call(&mut self) -> Result<(), String> {
        match self.partner {
            Some(partner) if partner > self.group.rank() => {
                self.send(partner)?;
                self.receive(partner)
            }
            Some(partner) => {
                self.receive(partner)?;
                self.send(partner)
            }
            None => Ok(()),
        }
    }
}

/// Waits for the end of an issued operation.
fn ended(issued: Result<Work, Error>) -> Result<(), String> {
    match issued.and_then(|work| work.wait(None, &mut || false)) {
        Ok(Waited::Done) => Ok(()),
        Ok(other) => Err(format!("the wait ended with {other:?}")),
        Err(error) => Err(error.to_string()),
    }
}

/// A C function with a collective of another library: source, destination, number of elements; it
/// returns 0 on success.
pub type Function = unsafe extern "C" fn(*const u8, *mut u8, usize) -> c_int;

/// A call of a [`Function`].
pub struct LibraryCall {
    function: Function,
    input: *const u8,
    output: *mut u8,
    count: usize,
}

// SAFETY: the pointers are plain addresses; `LibraryCall::new` states the requirements on the
// memory.
unsafe impl Send for LibraryCall {}

impl LibraryCall {
    /// A blocking call.
    ///
    /// # Safety
    /// As long as this is called, the function may be called with these arguments on the calling
    /// thread.
    pub unsafe fn new(function: Function, input: *const u8, output: *mut u8, count: usize) -> Self {
        Self {
            function,
            input,
            output,
            count,
        }
    }
}

impl TimedOperation for LibraryCall {
    fn call(&mut self) -> Result<(), String> {
        // SAFETY: as `new` requires.
        match unsafe { (self.function)(self.input, self.output, self.count) } {
            0 => Ok(()),
            code => Err(format!("the library returned {code}")),
        }
    }
}
