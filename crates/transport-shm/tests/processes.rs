//! Links between real processes: traffic, deaths, forked children, isolation.
//!
//! Each test starts this program again as its peer ([`peer_process`]) and passes instructions over
//! its standard input.

use std::io::{BufRead, Write};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use weft_transport::{
    EndpointId, Iovec, Link, LinkError, LinkEvents, Local, POOL_HEADER, RegionKey, Signal, Sleep,
    Submission, Transport, Woken,
};
use weft_transport_shm::ShmTransport;
use weft_transport_testing::conformance::{Events, Received, deadline};

const POOL_BYTES: u64 = 8 << 20;
const FLAG: u64 = POOL_HEADER;
const DATA: u64 = POOL_HEADER + 4096;
const ROUNDS: u64 = 2000;

/// How fast a death must be detected. The promise to users is one second, for all ranks.
const DEATH_DETECTED_WITHIN: Duration = Duration::from_millis(800);

/// Ends a process whose parent has died.
const LIFETIME_SECONDS: u32 = 60;

/// Held while a process is started: until it runs its program it has copies of all descriptors,
/// also of listeners that another test closes meanwhile.
static STARTING: Mutex<()> = Mutex::new(());

/// An endpoint and its end of a link.
struct ProcessSide {
    local: Local,
    _transport: ShmTransport,
    link: Arc<dyn Link>,
    received: Received,
}

impl ProcessSide {
    /// Sleeps on the futex, like a process that has only shared memory, until the condition holds.
    fn sleep_until(&mut self, what: &str, holds: impl Fn(&ProcessSide) -> bool) {
        let deadline = deadline();
        loop {
            if self.received.end.is_none() {
                self.received.end = self.link.receive(&mut self.received).err();
            }
            if holds(self) {
                return;
            }
            let left = deadline.saturating_duration_since(Instant::now());
            let doorbell = Arc::clone(&self.local.doorbell);
            let woken = doorbell.sleep(Sleep::Futex, &mut || holds(self), left);
            assert!(
                woken != Woken::TimedOut,
                "no {what}; the link: {:?}",
                self.received.end
            );
        }
    }

    fn word(&self, offset: u64) -> u64 {
        self.local.pool.word(offset).load(Ordering::Acquire)
    }

    /// Waits for the first message.
    fn message(&mut self) -> String {
        self.sleep_until("message", |side| !side.received.messages.is_empty());
        String::from_utf8(self.received.messages.remove(0)).unwrap()
    }
}

/// A peer process, which is killed when the test ends in any way.
struct ChildProcess(Child);

impl Drop for ChildProcess {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Starts a peer in this role, which connects to a new endpoint here.
fn with_peer(role: &str) -> (ProcessSide, ChildProcess) {
    let (local, transport, events) = listening();
    let peer = start(role, &local, &transport);
    let link = events.next_link();
    let side = ProcessSide {
        local,
        _transport: transport,
        link,
        received: Received::default(),
    };
    (side, peer)
}

fn listening() -> (Local, ShmTransport, Arc<Events>) {
    let local = Local::create(POOL_BYTES).unwrap();
    let transport = ShmTransport::new(local.clone()).unwrap();
    let events = Arc::new(Events::default());
    transport
        .listen(Arc::clone(&events) as Arc<dyn LinkEvents>)
        .unwrap();
    (local, transport, events)
}

fn start(role: &str, local: &Local, transport: &ShmTransport) -> ChildProcess {
    let starting = STARTING.lock().unwrap();
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "peer_process", "--ignored", "--nocapture"])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    drop(starting);
    let mut stdin = child.stdin.take().unwrap();
    let address = transport
        .address()
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect::<String>();
    writeln!(stdin, "{role} {:x} {address}", local.id.0).unwrap();
    ChildProcess(child)
}

/// Not a test: the peer process that the tests start.
#[test]
#[ignore = "started by the other tests"]
fn peer_process() {
    // SAFETY: a plain timer; its signal ends the process.
    unsafe { libc::alarm(LIFETIME_SECONDS) };
    let mut line = String::new();
    std::io::stdin().lock().read_line(&mut line).unwrap();
    let [role, id, address] = line.split_whitespace().collect::<Vec<_>>()[..] else {
        return;
    };
    let id = EndpointId(u128::from_str_radix(id, 16).unwrap());
    let address: Vec<u8> = (0..address.len() / 2)
        .map(|index| u8::from_str_radix(&address[2 * index..2 * index + 2], 16).unwrap())
        .collect();
    if role == "elsewhere" {
        std::process::exit(try_from_elsewhere(id, &address));
    }
    let local = Local::create(POOL_BYTES).unwrap();
    let transport = ShmTransport::new(local.clone()).unwrap();
    let never = AtomicBool::new(false);
    let link = transport
        .connect(id, &address, deadline(), &never)
        .unwrap()
        .unwrap();
    let side = ProcessSide {
        local,
        _transport: transport,
        link,
        received: Received::default(),
    };
    match role {
        "echo" => echo(side),
        "hold" => hold(&side, "ready"),
        "fork" => hold(&side, &fork_child().to_string()),
        "flood" => flood(&side),
        "goodbye" => side.link.close(),
        "drop" => {
            drop(side);
            pause()
        }
        other => panic!("no role {other}"),
    }
}

/// Sends everything back, then waits for a message that it was received.
fn echo(mut side: ProcessSide) {
    for value in 1..=ROUNDS {
        side.sleep_until("ping", |side| side.word(FLAG) == value);
        let start = side.local.pool.at(&(DATA..DATA + 64)).unwrap();
        // SAFETY: the range is in the pool, and its writer waits for the answer.
        let bytes = unsafe { std::slice::from_raw_parts(start.as_ptr(), 64) };
        let signal = Signal {
            offset: FLAG,
            value,
        };
        let echoed = (side.link).inject(RegionKey::POOL, DATA, bytes, Some(signal));
        echoed.unwrap();
    }
    side.message();
    side.link.close();
}

fn hold(side: &ProcessSide, message: &str) -> ! {
    side.link.message(message.as_bytes()).unwrap();
    pause()
}

fn pause() -> ! {
    loop {
        // SAFETY: waits for a signal.
        unsafe { libc::pause() };
    }
}

/// A child that keeps everything that it inherits, and ends by itself after a while.
fn fork_child() -> i32 {
    // SAFETY: the child makes only async-signal-safe calls.
    let pid = unsafe { libc::fork() };
    if pid == 0 {
        // SAFETY: a plain timer.
        unsafe { libc::alarm(LIFETIME_SECONDS) };
        pause();
    }
    assert!(pid > 0);
    pid
}

/// Puts, signals, messages and polled messages without end.
fn flood(side: &ProcessSide) {
    let bytes = vec![7; 100_000];
    // SAFETY: the vector lives as long as the process.
    let source = [unsafe { Iovec::new(bytes.as_ptr(), bytes.len()) }];
    for value in 1.. {
        let signal = Signal {
            offset: FLAG,
            value,
        };
        let put = (side.link).put(RegionKey::POOL, DATA, &source, Some(signal));
        put.unwrap();
        match value % 8 {
            0 => side.link.message(&value.to_le_bytes()).unwrap(),
            _ => side.link.polled_message(&[&value.to_le_bytes()]).unwrap(),
        }
        side.link.flush().unwrap();
    }
}

const COULD_NOT_LEAVE: i32 = 77;
const REFUSED: i32 = 0;

/// Tries to connect from another network namespace, as from another (emulated) host.
fn try_from_elsewhere(id: EndpointId, address: &[u8]) -> i32 {
    // SAFETY: changes nothing but this process's view.
    let left = unsafe { libc::unshare(libc::CLONE_NEWNET) } == 0;
    if !left {
        return COULD_NOT_LEAVE;
    }
    let transport = ShmTransport::new(Local::create(POOL_BYTES).unwrap()).unwrap();
    let never = AtomicBool::new(false);
    match transport.connect(id, address, deadline(), &never) {
        Err(LinkError::Absent(_)) => REFUSED,
        _ => 1,
    }
}

fn until_gone(side: &mut ProcessSide) {
    side.sleep_until("death", |side| side.received.end.is_some());
    assert!(
        matches!(side.received.end, Some(LinkError::Gone(_))),
        "{:?}",
        side.received.end
    );
}

/// Kills the peer and checks that its end is detected in time.
fn check_death_is_detected(side: &mut ProcessSide, peer: &mut ChildProcess) {
    let killed = Instant::now();
    peer.0.kill().unwrap();
    until_gone(side);
    assert!(
        killed.elapsed() < DEATH_DETECTED_WITHIN,
        "detected after {:?}",
        killed.elapsed()
    );
    until_proven(side);
}

/// The proof may lag a little behind the end of the link.
fn until_proven(side: &ProcessSide) {
    let deadline = deadline();
    while !side.link.peer_has_ended() {
        assert!(Instant::now() < deadline, "no proof");
        std::thread::yield_now();
    }
    if let Some(LinkError::Gone(_)) = side.received.end {
        let end = side.link.flush().unwrap_err().to_string();
        assert!(end.contains("process") && end.contains(" ended"), "{end}");
        assert!(!end.contains("connection"), "{end}");
    }
}

#[test]
fn two_processes_play_ping_pong() {
    let (mut side, _peer) = with_peer("echo");
    for value in 1..=ROUNDS {
        let bytes = [value as u8; 64];
        let signal = Signal {
            offset: FLAG,
            value,
        };
        // SAFETY: operations over shared memory complete immediately.
        let source =
            [&bytes[..10], &bytes[10..]].map(|b| unsafe { Iovec::new(b.as_ptr(), b.len()) });
        let put = (side.link).put(RegionKey::POOL, DATA, &source, Some(signal));
        assert_eq!(put.unwrap(), Submission::Done);
        side.sleep_until("pong", |side| side.word(FLAG) == value);
        let last = side.word(DATA + 56);
        assert_eq!(last, u64::from_ne_bytes([value as u8; 8]));
    }
    side.link.message(b"seen").unwrap();
    side.sleep_until("goodbye", |side| side.received.end.is_some());
    assert!(
        matches!(side.received.end, Some(LinkError::Left)),
        "{:?}",
        side.received.end
    );
}

#[test]
fn killed_process_is_gone_immediately() {
    let (mut side, mut peer) = with_peer("hold");
    assert_eq!(side.message(), "ready");
    check_death_is_detected(&mut side, &mut peer);
    // Its memory is still mapped, so a late write is possible.
    let memory = side.link.memory(RegionKey::POOL).unwrap();
    let last = memory.word(memory.len() - 8);
    assert_eq!(last.load(Ordering::Relaxed), 0);
}

/// A process that lives may continue writing to mapped memory.
#[test]
fn link_end_is_not_the_process_end() {
    let (mut side, mut peer) = with_peer("drop");
    until_gone(&mut side);
    let end = side.link.flush().unwrap_err().to_string();
    assert!(end.contains("the connection to process"), "{end}");
    assert!(!side.link.peer_has_ended());
    peer.0.kill().unwrap();
    until_proven(&side);
}

#[test]
fn a_process_that_is_stopped_has_not_ended() {
    let (mut side, mut peer) = with_peer("hold");
    assert_eq!(side.message(), "ready");
    // SAFETY: a plain signal.
    unsafe { libc::kill(peer.0.id() as i32, libc::SIGSTOP) };
    assert!(!side.link.peer_has_ended());
    check_death_is_detected(&mut side, &mut peer);
}

/// The child inherited the socket. It must not keep it open.
#[test]
fn forked_child_does_not_hide_the_death() {
    let (mut side, mut peer) = with_peer("fork");
    let grandchild: i32 = side.message().parse().unwrap();
    check_death_is_detected(&mut side, &mut peer);
    // SAFETY: a plain signal.
    let still_there = unsafe { libc::kill(grandchild, libc::SIGKILL) };
    assert_eq!(
        still_there, 0,
        "the child ended before the test was over: it proved nothing"
    );
}

#[test]
fn death_during_traffic_is_detected() {
    for trial in 0..10 {
        let (mut side, mut peer) = with_peer("flood");
        side.sleep_until("traffic", |side| side.word(FLAG) > 20 * trial);
        check_death_is_detected(&mut side, &mut peer);
        for (number, message) in (1_u64..).zip(&side.received.messages) {
            assert_eq!(*message, number.to_le_bytes());
        }
    }
}

#[test]
fn a_goodbye_is_not_a_death() {
    let (mut side, mut peer) = with_peer("goodbye");
    side.sleep_until("goodbye", |side| side.received.end.is_some());
    assert!(
        matches!(side.received.end, Some(LinkError::Left)),
        "{:?}",
        side.received.end
    );
    peer.0.wait().unwrap();
    until_proven(&side);
}

#[test]
fn another_network_namespace_is_another_host() {
    let (local, transport, events) = listening();
    let mut peer = start("elsewhere", &local, &transport);
    let status = peer.0.wait().unwrap();
    if status.code() == Some(COULD_NOT_LEAVE) {
        eprintln!("not tested: no permission to make a network namespace");
        return;
    }
    assert_eq!(status.code(), Some(REFUSED));
    assert!(events.asked.lock().unwrap().is_empty());
}

/// The address of a killed process has no listener.
#[test]
fn the_address_of_a_dead_process_is_refused() {
    let (local, transport, _events) = listening();
    let (address, id) = (transport.address(), local.id);
    let _none_starts = STARTING.lock().unwrap();
    drop(transport);
    let other = ShmTransport::new(Local::create(POOL_BYTES).unwrap()).unwrap();
    let never = AtomicBool::new(false);
    let result = other.connect(id, &address, deadline(), &never).map(drop);
    assert!(matches!(result, Err(LinkError::Absent(_))), "{result:?}");
}
