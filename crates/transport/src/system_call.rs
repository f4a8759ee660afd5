//! Failures of system calls, each with the name of the call: without it, "Operation not permitted"
//! says neither what a sandbox must allow nor which limit to raise.

use std::borrow::Cow;
use std::fmt;
use std::io;

/// A call that failed, and the operating system's reason.
#[derive(Debug)]
struct FailedCall {
    call: Cow<'static, str>,
    reason: io::Error,
}

impl fmt::Display for FailedCall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.call, self.reason)
    }
}

impl std::error::Error for FailedCall {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.reason)
    }
}

/// What a system call has returned: negative numbers are failures, whose reason is in `errno`.
pub fn checked<T: PartialOrd + Default>(call: &'static str, result: T) -> io::Result<T> {
    match result < T::default() {
        true => Err(last_failure(call)),
        false => Ok(result),
    }
}

/// The failure of a system call of this thread, the last one.
#[expect(clippy::disallowed_methods, reason = "here it gets the call's name")]
pub fn last_failure(call: &'static str) -> io::Error {
    let reason = io::Error::last_os_error();
    match reason.raw_os_error() {
        // It asks for another try, which happens often; nobody reads it.
        Some(libc::EAGAIN | libc::EINTR | libc::EINPROGRESS) => reason,
        _ => failed(call, reason),
    }
}

/// A failure with its call, and where it matters the object: `open /dev/null`.
pub fn failed(call: impl Into<Cow<'static, str>>, reason: io::Error) -> io::Error {
    let call = call.into();
    io::Error::new(reason.kind(), FailedCall { call, reason })
}

/// The operating system's number of an error, whether or not it has its call with it.
pub fn os_code(error: &io::Error) -> Option<i32> {
    let inner = error.get_ref().and_then(|inner| inner.downcast_ref());
    match inner {
        Some(FailedCall { reason, .. }) => os_code(reason),
        None => error.raw_os_error(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_names_its_call_and_keeps_its_reason() {
        // SAFETY: plain system call.
        let error = checked("close", unsafe { libc::close(-1) }).unwrap_err();
        assert!(error.to_string().starts_with("close: "), "{error}");
        assert_eq!(os_code(&error), Some(libc::EBADF));
        let full = failed("epoll_create1", io::Error::from_raw_os_error(libc::EMFILE));
        let outer = failed("the shm transport", full);
        assert_eq!(os_code(&outer), Some(libc::EMFILE));
        assert!(crate::is_own_limit(&outer));
        assert!(
            (outer.to_string()).starts_with("the shm transport: epoll_create1: "),
            "{outer}"
        );
    }

    #[test]
    fn what_asks_for_another_try_stays_as_it_is() {
        let (one, _other) = std::os::unix::net::UnixStream::pair().unwrap();
        one.set_nonblocking(true).unwrap();
        let (raw, mut byte) = (std::os::fd::AsRawFd::as_raw_fd(&one), 0_u8);
        // SAFETY: one writable byte.
        let read = unsafe { libc::read(raw, (&raw mut byte).cast(), 1) };
        let error = checked("read", read).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::EAGAIN));
    }
}
