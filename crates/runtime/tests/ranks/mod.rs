//! Test harness: one thread for each rank of a group, cases, and reference results.

#![allow(dead_code, reason = "each test file uses its part")]

pub(crate) mod arena;
pub(crate) mod case;
pub(crate) mod choices;
pub(crate) mod judge;
pub(crate) mod numbers;
pub(crate) mod registering;
pub(crate) mod requested;

use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Barrier, mpsc};
use std::time::Duration;

use weft_kernels::DType;
use weft_runtime::{
    Call, Counts, Encryption, Endpoint, EndpointOptions, Error, Group, GroupOptions, GroupTerms,
    MemoryStore, Op, Resumption, TransportChoice, Unregistered, Waited,
};
use weft_schedule::Collective;

/// The setup of a group's ranks.
#[derive(Clone, Debug)]
pub(crate) struct Setup {
    /// The transport of every rank.
    pub(crate) transport: TransportChoice,
    /// TCP connections of every link, if not the default number.
    pub(crate) tcp_connections: Option<usize>,
    /// Whether connections over TCP are made anew.
    pub(crate) tcp_resumption: Resumption,
    /// The ports of RDMA devices, if not the first.
    pub(crate) rdma_devices: Option<String>,
    /// The treatment of memory that is not registered.
    pub(crate) unregistered: Unregistered,
    /// Whether links over TCP are encrypted.
    pub(crate) encryption: Encryption,
    /// The host of every rank, to emulate several hosts.
    pub(crate) hosts: Option<Vec<u32>>,
    /// The bound of every rank's pool.
    pub(crate) pool_bytes: u64,
    /// The time after which a test has failed.
    pub(crate) deadline: Duration,
    /// The timeout of creation and operations.
    pub(crate) timeout: Duration,
    /// The terms of every rank.
    pub(crate) terms: GroupTerms,
}

impl Setup {
    pub(crate) fn on_hosts(hosts: &[u32]) -> Self {
        Setup {
            hosts: Some(hosts.to_vec()),
            ..TransportChoice::Auto.into()
        }
    }

    /// Whether all of this many ranks share memory.
    pub(crate) fn all_mapped(&self, ranks: u32) -> bool {
        let one_host = self
            .hosts
            .iter()
            .flatten()
            .all(|host| Some(host) == self.hosts.iter().flatten().next());
        ranks == 1 || (self.maps() && one_host)
    }

    /// Whether ranks on one host share memory.
    fn maps(&self) -> bool {
        !matches!(
            self.transport,
            TransportChoice::Rdma | TransportChoice::Tcp | TransportChoice::Custom(_)
        )
    }

    /// The same setup with declared units, level by level.
    pub(crate) fn with_levels(mut self, levels: &[&[u32]]) -> Self {
        self.terms.policy.levels = levels.iter().map(|level| level.to_vec()).collect();
        self
    }

    /// The same setup with declared domains inside hosts, level by level.
    pub(crate) fn with_domains(mut self, levels: &[&[u32]]) -> Self {
        let levels = levels.iter().map(|level| level.to_vec()).collect();
        self.terms.policy.domains = Some(levels);
        self
    }

    /// The setup of some of the ranks.
    pub(crate) fn of_ranks(&self, ranks: &[u32]) -> Self {
        let of = |hosts: &Vec<u32>| ranks.iter().map(|rank| hosts[*rank as usize]).collect();
        Setup {
            hosts: self.hosts.as_ref().map(of),
            ..self.clone()
        }
    }

    /// Ranks with the same number share memory.
    pub(crate) fn host_of_rank(&self, ranks: u32) -> Vec<u32> {
        match (&self.hosts, self.maps()) {
            (_, false) => (0..ranks).collect(),
            (Some(hosts), _) => hosts.clone(),
            (None, _) => vec![0; ranks as usize],
        }
    }

    pub(crate) fn endpoint(&self, rank: u32) -> Arc<Endpoint> {
        let options = EndpointOptions {
            transport: self.transport,
            interface: Some("127.0.0.1".into()),
            tcp_connections: self.tcp_connections,
            tcp_resumption: self.tcp_resumption,
            rdma_devices: self.rdma_devices.clone(),
            unregistered: self.unregistered,
            encryption: self.encryption,
            pool_bytes: self.pool_bytes,
            ..Default::default()
        };
        let endpoint = match &self.hosts {
            Some(hosts) => Endpoint::with_host_label(options, &hosts[rank as usize].to_string()),
            None => Endpoint::new(options),
        };
        endpoint.unwrap_or_else(|error| panic!("rank {rank}: {error}"))
    }
}

impl From<TransportChoice> for Setup {
    fn from(transport: TransportChoice) -> Self {
        Setup {
            transport,
            tcp_connections: None,
            tcp_resumption: Resumption::Auto,
            rdma_devices: None,
            unregistered: Unregistered::Copied,
            encryption: Encryption::Off,
            hosts: None,
            pool_bytes: 256 << 20,
            deadline: Duration::from_secs(300),
            timeout: Duration::from_secs(60),
            terms: GroupTerms::default(),
        }
    }
}

pub(crate) struct Ranks;

impl Ranks {
    /// Runs `body` on every rank, and returns the results. Panics if one panics, or after the
    /// deadline. The bodies begin when all ranks have the group, as a call that fails would break
    /// it for ranks that still make it.
    pub(crate) fn run<T: Send + 'static>(
        setup: impl Into<Setup>,
        ranks: u32,
        body: impl Fn(&Group) -> T + Send + Sync,
    ) -> Vec<T> {
        let made = Barrier::new(ranks as usize);
        Self::run_immediately(setup, ranks, |group| {
            made.wait();
            body(group)
        })
    }

    /// As [`Ranks::run`]; each body begins when its rank has the group.
    pub(crate) fn run_immediately<T: Send + 'static>(
        setup: impl Into<Setup>,
        ranks: u32,
        body: impl Fn(&Group) -> T + Send + Sync,
    ) -> Vec<T> {
        let setup = setup.into();
        let store = Arc::new(MemoryStore::new());
        let (sender, receiver) = mpsc::channel();
        std::thread::scope(|scope| {
            for rank in 0..ranks {
                let (store, sender) = (store.clone(), sender.clone());
                let (body, setup) = (&body, &setup);
                scope.spawn(move || {
                    let group = meet(setup, &store, rank, ranks);
                    let result = body(&group);
                    let _ = sender.send((rank, result));
                });
            }
            drop(sender);
            let mut results: Vec<(u32, T)> = Vec::new();
            while results.len() < ranks as usize {
                match receiver.recv_timeout(setup.deadline) {
                    Ok(result) => results.push(result),
                    Err(mpsc::RecvTimeoutError::Timeout) => {
                        eprintln!("only {} of {ranks} ranks ended in time", results.len());
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

/// The errors of the ranks of a meeting that fails, rank r with the r-th setup.
pub(crate) fn refusals(setups: &[Setup]) -> Vec<Error> {
    let store = MemoryStore::new();
    std::thread::scope(|scope| {
        let ranks: Vec<_> = (0..)
            .zip(setups)
            .map(|(rank, setup)| {
                let (store, size) = (&store, setups.len() as u32);
                scope.spawn(move || create(setup, store, rank, size).err())
            })
            .collect();
        let errors = ranks.into_iter().map(|rank| rank.join().unwrap());
        errors.map(|error| error.expect("a refusal")).collect()
    })
}

fn meet(setup: &Setup, store: &MemoryStore, rank: u32, ranks: u32) -> Arc<Group> {
    create(setup, store, rank, ranks).unwrap_or_else(|error| panic!("rank {rank}: {error}"))
}

pub(crate) fn create(
    setup: &Setup,
    store: &MemoryStore,
    rank: u32,
    ranks: u32,
) -> Result<Arc<Group>, Error> {
    let options = GroupOptions {
        timeout: setup.timeout,
        name: "test".into(),
        terms: setup.terms.clone(),
        ..GroupOptions::default()
    };
    let never = AtomicBool::new(false);
    Group::create(setup.endpoint(rank), store, rank, ranks, options, &never)
}

/// A sum of ones, which must be correct if it succeeds.
pub(crate) fn all_reduce(group: &Group) -> Result<(), Error> {
    let mut vector = vec![1.0_f32; 5000];
    let call = Call {
        collective: Collective::AllReduce,
        dtype: DType::F32,
        op: Op::Sum,
        input: vector.as_ptr().cast(),
        output: vector.as_mut_ptr().cast(),
        counts: Counts::Equal(vector.len() as u64),
        priority: 0,
        timeout: None,
        algorithm: None,
        tiling: Default::default(),
        wire: None,
    };
    // SAFETY: the vector is kept until the wait is over.
    let work = unsafe { group.issue(call, false) }?;
    assert_eq!(work.wait(None, &mut || false)?, Waited::Done);
    assert_eq!(vector, vec![group.size() as f32; vector.len()]);
    Ok(())
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

    /// A number less than `bound`.
    pub(crate) fn below(&mut self, bound: usize) -> usize {
        ((u128::from(self.next()) * bound as u128) >> 64) as usize
    }

    pub(crate) fn one_of<'a, T>(&mut self, choices: &'a [T]) -> &'a T {
        &choices[self.below(choices.len())]
    }

    /// A number between -1 and 1.
    pub(crate) fn float(&mut self) -> f32 {
        (self.next() >> 40) as f32 / (1 << 23) as f32 - 1.0
    }
}

/// The seed of a failed run, to repeat it.
const REPEAT: Option<u64> = None;

/// A new seed in every run. Tests print it when they fail.
pub(crate) fn fresh_seed() -> u64 {
    let fresh = || u64::from_le_bytes(weft_transport::random().expect("random numbers"));
    REPEAT.unwrap_or_else(fresh)
}
