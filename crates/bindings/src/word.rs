//! Words of memory that a device writes, for threads that wait for them without its driver.

use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use pyo3::prelude::*;

use crate::call::check_address;
use crate::interrupt::optional_duration;

const SLEEP_MIN: Duration = Duration::from_micros(20);
const SLEEP_MAX: Duration = Duration::from_micros(500);
/// A sleep is at most this part of the time that has been waited: so it adds little to that.
const SLEEP_SHARE: u32 = 16;

/// Waits until a 32-bit word has reached `value`, modulo 2**32. Returns False if it has not after
/// `timeout` seconds.
///
/// Nothing announces the write of a device, so this looks at the word between short sleeps. It
/// takes no lock and calls no driver: see [Note: No driver between arrival and release].
#[pyfunction]
pub(crate) fn wait_for_word(
    py: Python<'_>,
    address: usize,
    value: u32,
    timeout: f64,
) -> PyResult<bool> {
    check_address(py, address, size_of::<AtomicU32>() as u64)?;
    let timeout = optional_duration(py, Some(timeout))?;
    // SAFETY: the caller keeps the word, which is aligned, and which is written as a whole by the
    // device and by nothing else.
    let word = unsafe { AtomicU32::from_ptr(address as *mut u32) };
    Ok(py.detach(|| reaches(word, value, timeout)))
}

fn reaches(word: &AtomicU32, value: u32, timeout: Option<Duration>) -> bool {
    let began = Instant::now();
    loop {
        if word
            .load(Ordering::Acquire)
            .wrapping_sub(value)
            .cast_signed()
            >= 0
        {
            return true;
        }
        let waited = began.elapsed();
        if timeout.is_some_and(|timeout| waited >= timeout) {
            return false;
        }
        thread::sleep((waited / SLEEP_SHARE).clamp(SLEEP_MIN, SLEEP_MAX));
    }
}
