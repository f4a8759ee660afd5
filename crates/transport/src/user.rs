//! The user that this process runs as.

/// The process's effective user, which owns the files that it makes.
pub fn effective_user() -> u32 {
    // SAFETY: a plain query, which cannot fail.
    unsafe { libc::geteuid() }
}
