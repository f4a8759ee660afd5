//! Floating-point environment: the standard's defaults, independent of the calling thread's
//! settings.

/// Keeps rounding to nearest, and subnormal numbers as they are, while it lives.
///
/// Programs switch the flushing of subnormal numbers on for threads (torch has a function for it)
/// or for the whole process (libraries compiled with fast mathematics do, when they are loaded). It
/// must not change what ranks compute: the ranks would disagree.
pub(crate) struct FloatEnvironment {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    restore: Option<u32>,
}

#[cfg(all(target_arch = "x86_64", not(miri)))]
impl FloatEnvironment {
    /// Exceptions masked, round to nearest, nothing flushed.
    const DEFAULT: u32 = 0x1f80;
    /// Bits that only record which exceptions there were.
    const RECORDS: u32 = 0x003f;

    /// Sets the defaults, until dropped.
    #[inline(always)]
    pub(crate) fn set_default() -> FloatEnvironment {
        let control = load_control();
        if control & !Self::RECORDS == Self::DEFAULT {
            return FloatEnvironment { restore: None };
        }
        store_control(Self::DEFAULT);
        FloatEnvironment {
            restore: Some(control),
        }
    }
}

#[cfg(all(target_arch = "x86_64", not(miri)))]
impl Drop for FloatEnvironment {
    #[inline(always)]
    fn drop(&mut self) {
        if let Some(control) = self.restore {
            store_control(control);
        }
    }
}

/// The control and status register of vector arithmetic.
#[cfg(all(target_arch = "x86_64", not(miri)))]
#[inline(always)]
fn load_control() -> u32 {
    let mut control = 0u32;
    // SAFETY: writes the register's 4 bytes to `control`.
    unsafe {
        std::arch::asm!("stmxcsr [{}]", in(reg) &raw mut control, options(nostack, preserves_flags))
    };
    control
}

/// Sets the control and status register of vector arithmetic.
#[cfg(all(target_arch = "x86_64", not(miri)))]
#[inline(always)]
fn store_control(control: u32) {
    // SAFETY: the value is the default or was read from the register. No arithmetic moves across,
    // because the instruction may touch memory as far as the compiler knows, and kernels compute
    // from memory to memory.
    unsafe {
        std::arch::asm!("ldmxcsr [{}]", in(reg) &raw const control, options(nostack, preserves_flags))
    };
}

#[cfg(not(all(target_arch = "x86_64", not(miri))))]
impl FloatEnvironment {
    /// Nothing to set here.
    pub(crate) fn set_default() -> FloatEnvironment {
        FloatEnvironment {}
    }
}

#[cfg(all(test, target_arch = "x86_64", not(miri)))]
mod tests {
    use super::*;

    #[test]
    fn sets_and_restores() {
        const FLUSHING: u32 = FloatEnvironment::DEFAULT | 0x8040;
        store_control(FLUSHING);
        let guard = FloatEnvironment::set_default();
        let inside = load_control() & !FloatEnvironment::RECORDS;
        drop(guard);
        let outside = load_control() & !FloatEnvironment::RECORDS;
        store_control(FloatEnvironment::DEFAULT);
        assert_eq!(inside, FloatEnvironment::DEFAULT);
        assert_eq!(outside, FLUSHING);
    }
}
