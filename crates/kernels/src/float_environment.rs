//! Floating-point environment: the standard's defaults, independent of the calling thread's
//! settings.

/// Keeps rounding to nearest, and subnormal numbers as they are, while it lives.
///
/// Programs switch the flushing of subnormal numbers on for threads (torch has a function for it)
/// or for the whole process (libraries compiled with fast mathematics do, when they are loaded). It
/// must not change what ranks compute: the ranks would disagree.
pub(crate) struct FloatEnvironment {
    restore: Option<control::Register>,
}

impl FloatEnvironment {
    /// Sets the defaults, until dropped.
    #[inline(always)]
    pub(crate) fn set_default() -> FloatEnvironment {
        let found = control::load();
        if found & !control::RECORDS == control::DEFAULT {
            return FloatEnvironment { restore: None };
        }
        control::store(control::DEFAULT);
        FloatEnvironment {
            restore: Some(found),
        }
    }
}

impl Drop for FloatEnvironment {
    #[inline(always)]
    fn drop(&mut self) {
        if let Some(found) = self.restore {
            control::store(found);
        }
    }
}

/// The control and status register of vector arithmetic, MXCSR.
#[cfg(all(target_arch = "x86_64", not(miri)))]
mod control {
    pub(super) type Register = u32;

    /// Exceptions masked, round to nearest, nothing flushed.
    pub(super) const DEFAULT: Register = 0x1f80;
    /// Bits that only record which exceptions there were.
    pub(super) const RECORDS: Register = 0x003f;
    /// Subnormal sources and results are flushed to zero.
    #[cfg(test)]
    pub(super) const FLUSHING: Register = DEFAULT | 0x8040;

    #[inline(always)]
    pub(super) fn load() -> Register {
        let mut control = 0u32;
        // SAFETY: writes the register's 4 bytes to `control`.
        unsafe {
            std::arch::asm!("stmxcsr [{}]", in(reg) &raw mut control, options(nostack, preserves_flags))
        };
        control
    }

    #[inline(always)]
    pub(super) fn store(control: Register) {
        // SAFETY: the value is the default or was read from the register. No arithmetic moves
        // across, because the instruction may touch memory as far as the compiler knows, and
        // kernels compute from memory to memory.
        unsafe {
            std::arch::asm!("ldmxcsr [{}]", in(reg) &raw const control, options(nostack, preserves_flags))
        };
    }
}

/// The control register of floating-point arithmetic, FPCR.
#[cfg(all(target_arch = "aarch64", not(miri)))]
mod control {
    pub(super) type Register = u64;

    /// No traps, round to nearest, nothing flushed, binary16 as the standard has it.
    pub(super) const DEFAULT: Register = 0;
    /// Exceptions are recorded in another register.
    pub(super) const RECORDS: Register = 0;
    /// Subnormal numbers are flushed to zero.
    #[cfg(test)]
    pub(super) const FLUSHING: Register = 1 << 24;

    #[inline(always)]
    pub(super) fn load() -> Register {
        let control;
        // SAFETY: reads a register.
        unsafe {
            std::arch::asm!("mrs {}, fpcr", out(reg) control, options(nostack, preserves_flags))
        };
        control
    }

    #[inline(always)]
    pub(super) fn store(control: Register) {
        // SAFETY: the value is the default or was read from the register. No arithmetic moves
        // across, because the instruction may touch memory as far as the compiler knows, and
        // kernels compute from memory to memory.
        unsafe {
            std::arch::asm!("msr fpcr, {}", in(reg) control, options(nostack, preserves_flags))
        };
    }
}

/// Nothing that could be set.
#[cfg(not(all(any(target_arch = "x86_64", target_arch = "aarch64"), not(miri))))]
mod control {
    pub(super) type Register = u32;

    pub(super) const DEFAULT: Register = 0;
    pub(super) const RECORDS: Register = 0;

    pub(super) fn load() -> Register {
        DEFAULT
    }

    pub(super) fn store(_: Register) {}
}

#[cfg(all(test, any(target_arch = "x86_64", target_arch = "aarch64"), not(miri)))]
mod tests {
    use super::*;

    #[test]
    fn sets_and_restores() {
        control::store(control::FLUSHING);
        let guard = FloatEnvironment::set_default();
        let inside = control::load() & !control::RECORDS;
        drop(guard);
        let outside = control::load() & !control::RECORDS;
        control::store(control::DEFAULT);
        assert_eq!(inside, control::DEFAULT);
        assert_eq!(outside, control::FLUSHING);
    }
}
