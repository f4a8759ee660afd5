//! Spin policy: the polling time of a thread before it sleeps.

/// How patiently a thread polls before it sleeps. More ranks than cores must not spin: they would
/// keep each other from running.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct SpinPolicy {
    spins: u32,
    yields: u32,
}

impl SpinPolicy {
    /// For a number of threads that want to run on a number of cores.
    pub(crate) fn new(threads: usize, cores: usize) -> Self {
        if threads <= cores {
            SpinPolicy {
                spins: 2000,
                yields: 20,
            }
        } else {
            SpinPolicy {
                spins: 0,
                yields: 64,
            }
        }
    }

    /// Pauses for the `turn`-th time in a row. False once it is time to sleep.
    pub(crate) fn pause(self, turn: u32) -> bool {
        if turn <= self.spins {
            std::hint::spin_loop();
        } else if turn <= self.spins + self.yields {
            std::thread::yield_now();
        } else {
            return false;
        }
        true
    }
}
