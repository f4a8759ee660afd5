//! Failures of system calls, each with the name of the call: without it, "Operation not permitted"
//! names neither the call that a sandbox must allow nor the limit to raise.

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

/// Checks the result of a system call: negative numbers are failures, whose reason is in `errno`.
///
/// # Errors
/// The failure, with the name of the call.
pub fn checked<T: PartialOrd + Default>(call: &'static str, result: T) -> io::Result<T> {
    match result < T::default() {
        true => Err(last_failure(call)),
        false => Ok(result),
    }
}

/// The last failed system call of this thread, as an error.
#[expect(clippy::disallowed_methods, reason = "the call's name is added here")]
pub fn last_failure(call: &'static str) -> io::Error {
    let reason = io::Error::last_os_error();
    match reason.raw_os_error() {
        // It asks for a retry, which is frequent; the message is never read.
        Some(libc::EAGAIN | libc::EINTR | libc::EINPROGRESS) => reason,
        _ => failed(call, reason),
    }
}

/// An error with the name of its call, and where it matters the object: `open /dev/null`.
pub fn failed(call: impl Into<Cow<'static, str>>, reason: io::Error) -> io::Error {
    let call = call.into();
    io::Error::new(reason.kind(), FailedCall { call, reason })
}

/// The operating system's number of an error, with or without its call.
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
    fn failure_names_its_call_and_reason() {
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
    fn retryable_errors_keep_their_code() {
        let (one, _other) = std::os::unix::net::UnixStream::pair().unwrap();
        one.set_nonblocking(true).unwrap();
        let (raw, mut byte) = (std::os::fd::AsRawFd::as_raw_fd(&one), 0_u8);
        // SAFETY: one writable byte.
        let read = unsafe { libc::read(raw, (&raw mut byte).cast(), 1) };
        let error = checked("read", read).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::EAGAIN));
    }
}
