//! The user that this process runs as.

/// The process's effective user, as files that it makes are owned by.
pub fn effective_user() -> u32 {
    // SAFETY: a plain query, which cannot fail.
    unsafe { libc::geteuid() }
}
