//! Words of memory that a device shares with the host.

use std::sync::atomic::AtomicU32;

use pyo3::prelude::*;
use weft_runtime::DeviceWord;

use crate::call::check_address;
use crate::interrupt::optional_duration;

/// The word at an address, and a value of it.
pub(crate) fn word(py: Python<'_>, address: usize, value: u32) -> PyResult<DeviceWord> {
    check_address(py, address, size_of::<AtomicU32>() as u64)?;
    // SAFETY: the caller keeps the word, which is aligned, and which is written as a whole.
    let word = unsafe { AtomicU32::from_ptr(address as *mut u32) };
    Ok(DeviceWord::new(word, value))
}

/// Waits until a 32-bit word has reached `value`, modulo 2**32. Returns False if it has not after
/// `timeout` seconds.
///
/// It takes no lock and calls no driver: see [Note: No driver between arrival and release].
#[pyfunction]
pub(crate) fn wait_for_word(
    py: Python<'_>,
    address: usize,
    value: u32,
    timeout: f64,
) -> PyResult<bool> {
    let word = word(py, address, value)?;
    let timeout = optional_duration(py, Some(timeout))?;
    Ok(py.detach(|| word.wait(|waited| timeout.is_some_and(|timeout| waited >= timeout))))
}
