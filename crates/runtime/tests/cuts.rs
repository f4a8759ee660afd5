//! Tests of connections that break between living ranks: groups that outlive them; where they are
//! not made anew, error messages, later groups, and memory that must not be reused.

mod ranks;

use std::collections::BTreeSet;
use std::fs;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Barrier, Mutex, PoisonError};
use std::time::{Duration, Instant};

use ranks::{Setup, all_reduce};
use weft_kernels::DType;
use weft_runtime::{
    Call, Counts, Encryption, Endpoint, Error, Group, GroupOptions, MemoryStore, Op, Resumption,
    TransportChoice, Waited,
};
use weft_schedule::Collective;
use weft_transport_testing::reset_socket;

/// Serialises the tests, which cut sockets of this process.
static CUTTING: Mutex<()> = Mutex::new(());

const ROUNDS: usize = 6;

/// Makes a group of these endpoints, in their order, and runs `body` on each rank.
fn group<T: Send>(endpoints: &[&Arc<Endpoint>], body: impl Fn(&Group) -> T + Sync) -> Vec<T> {
    let store = MemoryStore::new();
    std::thread::scope(|scope| {
        let ranks: Vec<_> = (0..)
            .zip(endpoints)
            .map(|(rank, endpoint)| {
                let (store, body, size) = (&store, &body, endpoints.len() as u32);
                scope.spawn(move || {
                    let (never, options) = (AtomicBool::new(false), options());
                    let endpoint = Arc::clone(endpoint);
                    let group = Group::create(endpoint, store, rank, size, options, &never);
                    let group = group.unwrap_or_else(|error| panic!("rank {rank}: {error}"));
                    body(&group)
                })
            })
            .collect();
        let results = ranks.into_iter().map(|rank| rank.join().unwrap());
        results.collect()
    })
}

fn options() -> GroupOptions {
    GroupOptions {
        timeout: Duration::from_secs(20),
        name: "test".into(),
        ..GroupOptions::default()
    }
}

fn endpoints(setup: &Setup, count: u32) -> Vec<Arc<Endpoint>> {
    (0..count).map(|rank| setup.endpoint(rank)).collect()
}

fn works(group: &Group) {
    (0..20).for_each(|_| all_reduce(group).unwrap());
}

/// Lets rank 0 act once all ranks have arrived here.
fn once(group: &Group, all_are_here: &Barrier, act: impl FnOnce()) {
    all_are_here.wait();
    if group.rank() == 0 {
        act();
    }
}

/// The error of a group that breaks.
fn until_broken(group: &Group) -> Error {
    let since = Instant::now();
    loop {
        if let Some(error) = group.broken() {
            return error;
        }
        assert!(since.elapsed() < Duration::from_secs(20), "nothing broke");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// This process's connected sockets of a family.
fn connected(family: i32) -> BTreeSet<i32> {
    let open = fs::read_dir("/proc/self/fd").unwrap();
    let numbers = open.filter_map(|entry| entry.unwrap().file_name().to_str()?.parse().ok());
    numbers.filter(|number| is_peer(*number, family)).collect()
}

fn is_peer(number: i32, family: i32) -> bool {
    // SAFETY: zeros are a valid address.
    let mut address: libc::sockaddr_storage = unsafe { std::mem::zeroed() };
    let mut len = size_of::<libc::sockaddr_storage>() as libc::socklen_t;
    // SAFETY: the address is writable, and `len` is its length.
    let found = unsafe { libc::getpeername(number, (&raw mut address).cast(), &mut len) };
    found == 0 && i32::from(address.ss_family) == family
}

/// Breaks connections, as a broken network or a process that closes foreign descriptors does.
fn cut(sockets: impl IntoIterator<Item = i32>) {
    for socket in sockets {
        // SAFETY: plain system call; a socket that is closed by now is refused.
        unsafe { libc::shutdown(socket, libc::SHUT_RDWR) };
    }
}

fn cutting() -> impl Drop {
    CUTTING.lock().unwrap_or_else(PoisonError::into_inner)
}

fn is_lost(error: &Error) -> bool {
    matches!(error, Error::PeerLost { .. })
}

#[test]
fn ranks_connect_again_after_their_connection_broke() {
    let _alone = cutting();
    for transport in [TransportChoice::Tcp, TransportChoice::Shm] {
        let family = match transport {
            TransportChoice::Tcp => libc::AF_INET,
            _ => libc::AF_UNIX,
        };
        let setup = Setup {
            tcp_resumption: Resumption::Off,
            ..transport.into()
        };
        let all = endpoints(&setup, 2);
        let both = [&all[0], &all[1]];
        for _ in 0..ROUNDS {
            let ready = Barrier::new(2);
            let errors = group(&both, |group| {
                works(group);
                once(group, &ready, || cut(connected(family)));
                until_broken(group)
            });
            assert!(errors.iter().all(is_lost), "{errors:?}");
            let text = errors[0].to_string();
            assert!(
                text.contains("lost rank 1 on") && text.contains("the connection to"),
                "{text}"
            );
            assert!(text.contains("may have ended, or may still run"), "{text}");
        }
        group(&both, works);
    }
}

#[test]
fn reported_loss_names_the_reporter_and_affects_one_group() {
    let _alone = cutting();
    let setup = Setup {
        tcp_resumption: Resumption::Off,
        ..Setup::on_hosts(&[0, 1, 1])
    };
    let all = endpoints(&setup, 3);
    let [a, b, c] = [&all[0], &all[1], &all[2]];
    for _ in 0..ROUNDS {
        let before = connected(libc::AF_INET);
        let between = Mutex::new(BTreeSet::new());
        let ready = Barrier::new(2);
        group(&[a, b], |group| {
            works(group);
            once(group, &ready, || {
                let now = connected(libc::AF_INET);
                *between.lock().unwrap() = now.difference(&before).copied().collect();
            });
        });
        let ready = Barrier::new(3);
        let errors = group(&[a, b, c], |group| {
            works(group);
            let sockets = || between.lock().unwrap().iter().copied().collect::<Vec<_>>();
            once(group, &ready, || cut(sockets()));
            until_broken(group)
        });
        assert!(errors.iter().all(is_lost), "{errors:?}");
        let error = errors[2].to_string();
        assert!(
            error.contains("(reported by rank 0)") || error.contains("(reported by rank 1)"),
            "{error}"
        );
        // A rank keeps using its own link despite the report.
        group(&[b, c], works);
        group(&[c, a], works);
        // The next group has no link between these two.
        let left = between.into_inner().unwrap();
        assert!(!left.is_empty());
    }
    group(&[a, b, c], works);
}

/// A living process may continue to write into mapped memory until it reports, over the next link,
/// that it has detached.
#[test]
fn mapped_memory_is_reused_only_after_its_peer_detached() {
    let _alone = cutting();
    let all = endpoints(&TransportChoice::Shm.into(), 2);
    let both = [&all[0], &all[1]];
    let free = all[0].pool().available();
    group(&both, works);
    let since = Instant::now();
    while all[0].pool().available() < free {
        assert!(since.elapsed() < Duration::from_secs(20), "not given back");
        group(&[&all[0]], |_| ());
    }
    for round in 1..3 {
        let ready = Barrier::new(2);
        group(&both, |group| {
            works(group);
            once(group, &ready, || cut(connected(libc::AF_UNIX)));
            until_broken(group)
        });
        for endpoint in both {
            let (pool, kept) = (endpoint.pool(), endpoint.pool().quarantined());
            assert!(kept > 0);
            assert_eq!(pool.available(), free - kept, "round {round}");
        }
    }
    let given_back = || {
        let since = Instant::now();
        for endpoint in both {
            while endpoint.pool().available() < free {
                assert!(since.elapsed() < Duration::from_secs(20), "not given back");
                group(&[endpoint], |_| ());
            }
            assert_eq!(endpoint.pool().quarantined(), 0);
        }
    };
    group(&both, works);
    given_back();
    let open = || fs::read_dir("/proc/self/fd").unwrap().count();
    let before = open();
    for _ in 0..3 {
        let ready = Barrier::new(2);
        group(&both, |broken| {
            works(broken);
            once(broken, &ready, || cut(connected(libc::AF_UNIX)));
            until_broken(broken);
            // The last rank detaches only after they have connected again.
            if broken.rank() == 0 {
                broken.close();
                group(&both, works);
            }
            ready.wait();
        });
        given_back();
    }
    let since = Instant::now();
    while open() > before {
        let after = open();
        assert!(
            since.elapsed() < Duration::from_secs(20),
            "{before} descriptors, {after} after three cuts"
        );
        group(&both, works);
    }
}

/// One after the other is reset, at intervals of some milliseconds, until this is dropped.
struct Resetting {
    over: Arc<AtomicBool>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Resetting {
    fn begin() -> Self {
        let over = Arc::new(AtomicBool::new(false));
        let until = over.clone();
        let thread = std::thread::spawn(move || {
            for turn in 0_usize.. {
                if until.load(Ordering::Relaxed) {
                    return;
                }
                let sockets = connected(libc::AF_INET);
                if let Some(socket) = sockets.iter().nth(turn % sockets.len().max(1)) {
                    reset_socket(*socket);
                }
                std::thread::sleep(Duration::from_millis(2 + turn as u64 % 9));
            }
        });
        Resetting {
            over,
            thread: Some(thread),
        }
    }
}

impl Drop for Resetting {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        let ended = self.thread.take().map(std::thread::JoinHandle::join);
        assert!(ended.is_none_or(|ended| ended.is_ok()));
    }
}

#[test]
fn sums_are_exact_while_connections_are_reset() {
    let _alone = cutting();
    for (connections, encryption) in [(1, Encryption::Off), (3, Encryption::Best)] {
        let setup = Setup {
            tcp_connections: Some(connections),
            tcp_resumption: Resumption::On,
            encryption,
            ..TransportChoice::Tcp.into()
        };
        let all = endpoints(&setup, 4);
        let all: Vec<&Arc<Endpoint>> = all.iter().collect();
        let renewed = group(&all, |group| {
            works(group);
            let resetting = (group.rank() == 0).then(Resetting::begin);
            let until = Instant::now() + Duration::from_secs(3);
            // All ranks make the same number of calls.
            while largest(group, f32::from(Instant::now() >= until)) == 0.0 {
                for _ in 0..20 {
                    all_reduce(group).unwrap();
                }
            }
            drop(resetting);
            works(group);
            let traffic = group.traffic().unwrap();
            traffic
                .iter()
                .map(|link| link.traffic.renewals)
                .sum::<u64>()
        });
        assert!(renewed.iter().sum::<u64>() > 50, "{renewed:?}");
    }
}

/// The largest number of all ranks.
fn largest(group: &Group, mine: f32) -> f32 {
    let mut number = [mine];
    let call = Call {
        collective: Collective::AllReduce,
        dtype: DType::F32,
        op: Op::Max,
        input: number.as_ptr().cast(),
        output: number.as_mut_ptr().cast(),
        counts: Counts::Equal(1),
        priority: 0,
        timeout: None,
        algorithm: None,
        tiling: Default::default(),
        wire: None,
    };
    // SAFETY: the number is kept until the wait is over.
    let work = unsafe { group.issue(call, false) }.unwrap();
    assert_eq!(work.wait(None, &mut || false).unwrap(), Waited::Done);
    number[0]
}
