//! Round-trip time of a signal to another process, for each method of waiting:
//! `cargo run --release --example ping_pong`.
//!
//! The peer is this program again, with the address as its arguments.

use std::os::fd::{AsFd, FromRawFd, OwnedFd};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use weft_transport::{EndpointId, Link, LinkEvents, Local, POOL_HEADER, Signal, Sleep, Transport};
use weft_transport_shm::ShmTransport;
use weft_transport_testing::conformance::Events;

const ROUNDS: u64 = 20_000;
const LONG: Duration = Duration::from_secs(10);

/// The ways of waiting, each with its own flag.
const WAYS: [&str; 4] = ["spin", "yield", "futex", "poll"];

fn main() {
    let local = Local::create(1 << 20).expect("an endpoint");
    let transport = ShmTransport::new(local.clone()).expect("a transport");
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let [id, address] = &arguments[..] {
        let id = EndpointId(u128::from_str_radix(id, 16).expect("an identity"));
        let address = parse_hex(address);
        let never = AtomicBool::new(false);
        let link = transport.connect(id, &address, Instant::now() + LONG, &never);
        let link = link.expect("a connection").expect("no yield");
        for way in 0..WAYS.len() {
            for value in 1..=ROUNDS {
                wait(&local, way, value);
                signal(&*link, way, value);
            }
        }
        link.close();
        return;
    }
    let events = Arc::new(Events::default());
    transport
        .listen(Arc::clone(&events) as Arc<dyn LinkEvents>)
        .expect("a listener");
    let program = std::env::current_exe().expect("this program");
    let address = transport
        .address()
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect::<String>();
    let mut peer = Command::new(program)
        .args([format!("{:x}", local.id.0), address])
        .spawn()
        .expect("a peer");
    let link = events.next_link();
    for (way, name) in WAYS.iter().enumerate() {
        let mut times: Vec<Duration> = (1..=ROUNDS)
            .map(|value| {
                let started = Instant::now();
                signal(&*link, way, value);
                wait(&local, way, value);
                started.elapsed()
            })
            .collect();
        times.sort_unstable();
        let at = |percent: usize| times[(times.len() - 1) * percent / 100].as_nanos();
        println!(
            "{name:6} round trip: min {:6} ns, median {:6} ns, p95 {:6} ns",
            at(0),
            at(50),
            at(95)
        );
    }
    peer.wait().expect("the peer's end");
}

fn flag(way: usize) -> u64 {
    POOL_HEADER + 128 * way as u64
}

fn signal(link: &dyn Link, way: usize, value: u64) {
    link.signal(Signal {
        offset: flag(way),
        value,
    })
    .expect("a signal");
}

fn wait(local: &Local, way: usize, value: u64) {
    let word = local.pool.word(flag(way));
    let seen = || word.load(Ordering::Acquire) >= value;
    match WAYS[way] {
        "spin" => {
            while !seen() {
                std::hint::spin_loop();
            }
        }
        "yield" => {
            while !seen() {
                std::thread::yield_now();
            }
        }
        "futex" => {
            while !seen() {
                local.doorbell.sleep(Sleep::Futex, &mut || seen(), LONG);
            }
        }
        _ => EMPTY.with(|nothing| {
            while !seen() {
                local
                    .doorbell
                    .sleep(Sleep::Descriptors(nothing.as_fd()), &mut || seen(), LONG);
            }
        }),
    }
}

thread_local! {
    /// An epoll descriptor that watches nothing.
    static EMPTY: OwnedFd = {
        // SAFETY: plain system call.
        let raw = unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) };
        assert!(raw >= 0);
        // SAFETY: the kernel has just made this descriptor for us.
        unsafe { OwnedFd::from_raw_fd(raw) }
    };
}

fn parse_hex(text: &str) -> Vec<u8> {
    let digits = |index| u8::from_str_radix(&text[2 * index..2 * index + 2], 16);
    (0..text.len() / 2)
        .map(|index| digits(index).expect("hexadecimal digits"))
        .collect()
}
