//! What can be timed.

use std::ffi::c_int;
use std::sync::Arc;

use weft_runtime::{Call, Group, Waited};

/// One operation, ready to be called again and again on the same memory.
pub trait Operation: Send {
    /// Does it once, to the end.
    fn call(&mut self) -> Result<(), String>;
}

/// A collective of weft's, as a Rust user calls it.
pub struct GroupCall {
    group: Arc<Group>,
    call: Call,
}

impl GroupCall {
    /// A blocking call.
    ///
    /// # Safety
    /// As long as this is called, what [`Group::issue`] asks for holds.
    pub unsafe fn new(group: Arc<Group>, call: Call) -> Self {
        Self { group, call }
    }
}

impl Operation for GroupCall {
    fn call(&mut self) -> Result<(), String> {
        // SAFETY: the promise made to `new`.
        let issued = unsafe { self.group.issue(self.call.clone(), false) };
        match issued.and_then(|work| work.wait(None, &mut || false)) {
            Ok(Waited::Done) => Ok(()),
            Ok(other) => Err(format!("the wait ended with {other:?}")),
            Err(error) => Err(error.to_string()),
        }
    }
}

/// A collective of another library, behind a C function: from, to, number of elements; 0 if it went well.
pub type Function = unsafe extern "C" fn(*const u8, *mut u8, usize) -> c_int;

/// A call of a [`Function`].
pub struct LibraryCall {
    function: Function,
    input: *const u8,
    output: *mut u8,
    count: usize,
}

// SAFETY: the pointers are plain addresses; `LibraryCall::new` says who answers for the memory.
unsafe impl Send for LibraryCall {}

impl LibraryCall {
    /// A blocking call.
    ///
    /// # Safety
    /// As long as this is called, the function may be called with these arguments on the calling thread.
    pub unsafe fn new(function: Function, input: *const u8, output: *mut u8, count: usize) -> Self {
        Self {
            function,
            input,
            output,
            count,
        }
    }
}

impl Operation for LibraryCall {
    fn call(&mut self) -> Result<(), String> {
        // SAFETY: the promise made to `new`.
        match unsafe { (self.function)(self.input, self.output, self.count) } {
            0 => Ok(()),
            code => Err(format!("the library returned {code}")),
        }
    }
}
