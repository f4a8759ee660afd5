//! Checksums of memory that the caller keeps.

use pyo3::prelude::*;
use twox_hash::XxHash3_64;

/// The XXH3 hash of the bytes at an address: for equality, not against people who choose them.
#[pyfunction]
pub(crate) fn checksum(py: Python<'_>, address: usize, count: usize) -> u64 {
    if count == 0 {
        return XxHash3_64::oneshot(&[]);
    }
    // SAFETY: the caller keeps the memory, and nobody writes to it meanwhile.
    let bytes = unsafe { std::slice::from_raw_parts(address as *const u8, count) };
    py.detach(|| XxHash3_64::oneshot(bytes))
}
