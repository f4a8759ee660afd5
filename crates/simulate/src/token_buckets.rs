//! Token buckets: network lines that accumulate unused bandwidth.
//!
//! An idle line saves up bytes at its rate, up to a burst, and lets pass that much at once before
//! it keeps to its rate. Emulated lines do this, and so do many rented ones.

use crate::share::{ResourceId, Shares};

/// The rate of a line with saved tokens: practically unlimited.
const UNLIMITED_BYTES_PER_S: f64 = 1e12;
/// Fewer saved bytes than this count as none: computed values differ by the last digits.
const NOTHING_BYTES: f64 = 1.0;
/// No turn is nearer than this share of the time that has passed, so that time advances.
const SOON: f64 = 1e-12;

/// The lines of one simulation.
#[derive(Default)]
pub(crate) struct TokenBuckets {
    token_buckets: Vec<TokenBucket>,
}

struct TokenBucket {
    line: ResourceId,
    bytes_per_s: f64,
    burst_bytes: f64,
    /// The tokens saved at the time `at`.
    saved: f64,
    at: f64,
    /// The rate taken from the line since then, in bytes per second.
    used: f64,
    open: bool,
}

impl TokenBuckets {
    /// Adds a line, which has saved up all that it can.
    pub(crate) fn add_line(
        &mut self,
        shares: &mut Shares,
        bytes_per_s: f64,
        burst_bytes: f64,
    ) -> ResourceId {
        if burst_bytes == 0.0 {
            return shares.add_resource(bytes_per_s);
        }
        let line = shares.add_resource(UNLIMITED_BYTES_PER_S);
        self.token_buckets.push(TokenBucket {
            line,
            bytes_per_s,
            burst_bytes,
            saved: burst_bytes,
            at: 0.0,
            used: 0.0,
            open: true,
        });
        line
    }

    /// Opens lines that have something saved up, and closes those that have not. To be called
    /// before rates change.
    pub(crate) fn turn(&mut self, now: f64, shares: &mut Shares) {
        for bucket in &mut self.token_buckets {
            let more = (bucket.bytes_per_s - bucket.used) * (now - bucket.at);
            bucket.saved = (bucket.saved + more).clamp(0.0, bucket.burst_bytes);
            bucket.at = now;
            let open = bucket.saved > NOTHING_BYTES;
            if open != bucket.open {
                bucket.open = open;
                let capacity = if open {
                    UNLIMITED_BYTES_PER_S
                } else {
                    bucket.bytes_per_s
                };
                shares.set_capacity(bucket.line, capacity);
            }
        }
    }

    /// Records the present rates, and returns the time at which the first line will have spent its
    /// tokens.
    pub(crate) fn next_turn(&mut self, shares: &Shares) -> Option<f64> {
        let mut next: Option<f64> = None;
        for bucket in &mut self.token_buckets {
            bucket.used = shares.used(bucket.line);
            if bucket.open && bucket.used > bucket.bytes_per_s {
                let spent = bucket.at + bucket.saved / (bucket.used - bucket.bytes_per_s);
                let spent = spent.max(bucket.at * (1.0 + SOON));
                next = Some(next.map_or(spent, |next| next.min(spent)));
            }
        }
        next
    }
}
