//! Runs a function as every rank of a group, one thread each.

use std::sync::atomic::AtomicBool;
use std::sync::{Arc, mpsc};
use std::time::Duration;

use weft_runtime::{Endpoint, EndpointOptions, Group, GroupOptions, MemoryStore, TransportChoice};

/// A test that takes longer hangs.
const DEADLINE: Duration = Duration::from_secs(120);

pub(crate) struct Ranks;

impl Ranks {
    /// Returns what every rank returned. Panics if one panics, or if they take too long.
    pub(crate) fn run<T: Send + 'static>(
        transport: TransportChoice,
        ranks: u32,
        body: impl Fn(&Group) -> T + Send + Sync,
    ) -> Vec<T> {
        Self::run_with_timeout(transport, ranks, Duration::from_secs(60), body)
    }

    pub(crate) fn run_with_timeout<T: Send + 'static>(
        transport: TransportChoice,
        ranks: u32,
        timeout: Duration,
        body: impl Fn(&Group) -> T + Send + Sync,
    ) -> Vec<T> {
        let store = Arc::new(MemoryStore::new());
        let (sender, receiver) = mpsc::channel();
        std::thread::scope(|scope| {
            for rank in 0..ranks {
                let (store, sender, body) = (store.clone(), sender.clone(), &body);
                scope.spawn(move || {
                    let options = EndpointOptions {
                        transport,
                        pool_bytes: 256 << 20,
                        ..Default::default()
                    };
                    let endpoint = Endpoint::new(options).unwrap();
                    let options = GroupOptions {
                        timeout,
                        name: "test".into(),
                    };
                    let group = Group::create(
                        endpoint,
                        store.as_ref(),
                        rank,
                        ranks,
                        options,
                        &AtomicBool::new(false),
                    );
                    let group = group.unwrap_or_else(|error| panic!("rank {rank}: {error}"));
                    let result = body(&group);
                    let _ = sender.send((rank, result));
                });
            }
            drop(sender);
            let mut results: Vec<(u32, T)> = Vec::new();
            while results.len() < ranks as usize {
                match receiver.recv_timeout(DEADLINE) {
                    Ok(result) => results.push(result),
                    Err(mpsc::RecvTimeoutError::Timeout) => {
                        eprintln!("only {} of {ranks} ranks came back in time", results.len());
                        std::process::abort();
                    }
                    Err(mpsc::RecvTimeoutError::Disconnected) => panic!("a rank panicked"),
                }
            }
            results.sort_by_key(|(rank, _)| *rank);
            results.into_iter().map(|(_, result)| result).collect()
        })
    }
}

/// A small generator of test data (xorshift64*).
pub(crate) struct Rng(u64);

impl Rng {
    pub(crate) fn new(seed: u64) -> Self {
        Rng(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    /// Between -1 and 1.
    pub(crate) fn float(&mut self) -> f32 {
        (self.next() >> 40) as f32 / (1 << 23) as f32 - 1.0
    }
}
