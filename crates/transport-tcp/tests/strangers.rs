//! Tests of unauthorized connections at the port: dropped, without delay for others.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use weft_transport::{LinkError, Transport};
use weft_transport_tcp::{Interface, TcpOptions, TcpTransport};
use weft_transport_testing::conformance::{Subject, connect, deadline, listening};

const SUBJECT: Subject = Subject {
    make: |local| {
        let options = TcpOptions {
            interface: Interface::Named("127.0.0.1".into()),
            ..TcpOptions::default()
        };
        Arc::new(TcpTransport::new(local, options).expect("a port on the loopback interface"))
    },
};

/// An address begins with the port.
fn dial(transport: &Arc<dyn Transport>) -> TcpStream {
    let address = transport.address();
    let port = u16::from_le_bytes([address[0], address[1]]);
    let stream = TcpStream::connect(("127.0.0.1", port)).expect("the port is open");
    let timeout = Duration::from_secs(5);
    stream.set_read_timeout(Some(timeout)).expect("a timeout");
    stream
}

/// The bytes that the listener sends before it ends the connection; a reset counts as an end.
fn answer(mut stream: TcpStream) -> Vec<u8> {
    let mut answer = Vec::new();
    match stream.read_to_end(&mut answer) {
        Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {
            panic!("the connection was not ended");
        }
        _ => answer,
    }
}

#[test]
fn invalid_first_bytes_get_dropped_without_answer() {
    let ((_local, transport), _events) = listening(&SUBJECT);
    for hello in [
        &b"GET / HTTP/1.1\r\n\r\n"[..],
        b"x",
        &[0; 76],
        &[0xff; 4096],
    ] {
        let mut stream = dial(&transport);
        stream.write_all(hello).expect("the connection is new");
        assert_eq!(answer(stream), b"");
    }
}

#[test]
fn silent_callers_do_not_delay_others() {
    let (b, events) = listening(&SUBJECT);
    let (a, _) = listening(&SUBJECT);
    let mut silent: Vec<TcpStream> = (0..40).map(|_| dial(&b.1)).collect();
    for stream in &mut silent[..20] {
        stream
            .write_all(b"weft-tcp")
            .expect("the connection is new");
    }
    assert!(connect(&a, &b).expect("a connection").is_some());
    assert_eq!(events.next_link().peer(), a.0.id);
}

#[test]
fn a_flood_of_strangers_makes_room_for_peers() {
    let (b, events) = listening(&SUBJECT);
    let (a, _) = listening(&SUBJECT);
    let _strangers: Vec<TcpStream> = (0..600).map(|_| dial(&b.1)).collect();
    assert!(connect(&a, &b).expect("a connection").is_some());
    assert_eq!(events.next_link().peer(), a.0.id);
}

#[test]
fn strangers_get_no_answer() {
    let (b, events) = listening(&SUBJECT);
    let (a, _) = listening(&SUBJECT);
    let soon = std::time::Instant::now() + Duration::from_millis(300);
    let never = AtomicBool::new(false);
    let refused = a.1.connect(b.0.id, &b.1.address(), soon, &never);
    assert!(matches!(refused, Err(LinkError::TimedOut(_))));
    assert!(events.asked.lock().unwrap().is_empty());
}

#[test]
fn member_with_anothers_identity_is_dropped() {
    let (b, events) = listening(&SUBJECT);
    let (member, _) = listening(&SUBJECT);
    let (other, _) = listening(&SUBJECT);
    b.1.admit(member.0.id, &member.1.address()).unwrap();
    b.1.admit(other.0.id, &other.1.address()).unwrap();
    // The member's identity with the other's keys.
    let forged = (SUBJECT.make)(weft_transport::Local {
        id: member.0.id,
        ..other.0.clone()
    });
    let never = AtomicBool::new(false);
    let refused = forged.connect(b.0.id, &b.1.address(), deadline(), &never);
    assert!(matches!(refused, Err(LinkError::Refused(_))));
    assert!(events.asked.lock().unwrap().is_empty());
}

#[test]
fn early_member_gets_its_link() {
    let (b, events) = listening(&SUBJECT);
    let (a, _) = listening(&SUBJECT);
    std::thread::scope(|scope| {
        let never = AtomicBool::new(false);
        let address = b.1.address();
        let (a, to) = (&a, b.0.id);
        let call = scope.spawn(move || a.1.connect(to, &address, deadline(), &never));
        std::thread::sleep(Duration::from_millis(100));
        assert!(events.asked.lock().unwrap().is_empty());
        b.1.admit(a.0.id, &a.1.address()).unwrap();
        assert!(call.join().unwrap().unwrap().is_some());
    });
    assert_eq!(events.next_link().peer(), a.0.id);
}

#[test]
fn a_caller_that_reaches_another_listener_refuses_it() {
    let (b, events) = listening(&SUBJECT);
    let (a, _) = listening(&SUBJECT);
    b.1.admit(a.0.id, &a.1.address()).unwrap();
    let mut address = b.1.address();
    address[2..34].copy_from_slice(&a.1.address()[2..34]);
    let never = AtomicBool::new(false);
    let refused = a.1.connect(b.0.id, &address, deadline(), &never);
    assert!(matches!(refused, Err(LinkError::Refused(_))));
    assert!(events.asked.lock().unwrap().is_empty());
}

/// The bytes that a caller sends before its link is established.
const HELLO_AND_CONFIRMATION: usize = 140 + 18;

/// Forwards one connection to the listener, and returns the caller's bytes.
fn record(to: u16, middle: std::net::TcpListener) -> Vec<u8> {
    let (mut caller, _) = middle.accept().expect("a caller");
    let mut listener = TcpStream::connect(("127.0.0.1", to)).expect("the port is open");
    let mut back = (listener.try_clone().unwrap(), caller.try_clone().unwrap());
    std::thread::spawn(move || std::io::copy(&mut back.0, &mut back.1));
    let mut recorded = Vec::new();
    let mut bytes = [0; 4096];
    while recorded.len() < HELLO_AND_CONFIRMATION {
        let read = caller.read(&mut bytes).expect("the caller continues");
        recorded.extend(&bytes[..read]);
        listener
            .write_all(&bytes[..read])
            .expect("the listener continues");
    }
    recorded
}

#[test]
fn a_recorded_conversation_makes_no_link() {
    let (b, events) = listening(&SUBJECT);
    let (a, _) = listening(&SUBJECT);
    b.1.admit(a.0.id, &a.1.address()).unwrap();
    let middle = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let mut address = b.1.address();
    let port = u16::from_le_bytes([address[0], address[1]]);
    address[..2].copy_from_slice(&middle.local_addr().unwrap().port().to_le_bytes());
    let recording = std::thread::spawn(move || record(port, middle));
    let never = AtomicBool::new(false);
    let link = a.1.connect(b.0.id, &address, deadline(), &never);
    assert!(link.unwrap().is_some());
    assert_eq!(events.next_link().peer(), a.0.id);
    let recorded = recording.join().unwrap();
    assert_eq!(events.asked.lock().unwrap().len(), 1);
    let mut stream = dial(&b.1);
    stream.write_all(&recorded).unwrap();
    // The answer arrives, and then the end.
    assert_eq!(answer(stream).len(), 48);
    assert_eq!(events.asked.lock().unwrap().len(), 1);
    assert!(connect(&a, &b).unwrap().is_some());
}

/// The first bytes that a stranger sends to the listener.
fn hello_of_a_stranger(b: &(weft_transport::Local, Arc<dyn Transport>)) -> [u8; 140] {
    let (stranger, _) = listening(&SUBJECT);
    let middle = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let mut address = b.1.address();
    address[..2].copy_from_slice(&middle.local_addr().unwrap().port().to_le_bytes());
    let to = b.0.id;
    let call = std::thread::spawn(move || {
        let never = AtomicBool::new(false);
        let called = stranger.1.connect(to, &address, deadline(), &never);
        called.map(drop).expect_err("no answer")
    });
    let mut hello = [0; 140];
    let (mut caller, _) = middle.accept().unwrap();
    caller.read_exact(&mut hello).unwrap();
    drop(caller);
    let why = call.join().unwrap().to_string();
    assert!(why.contains("not the endpoint of this address"), "{why}");
    hello
}

#[test]
fn caller_that_skips_the_answer_is_dropped() {
    let (b, events) = listening(&SUBJECT);
    let hello = hello_of_a_stranger(&b);
    let mut waiting = dial(&b.1);
    waiting.write_all(&hello).unwrap();
    let mut hasty = dial(&b.1);
    hasty.write_all(&[&hello[..], b"x"].concat()).unwrap();
    assert_eq!(answer(hasty), b"");
    waiting.set_nonblocking(true).unwrap();
    let patient = waiting.read(&mut [0]).unwrap_err();
    assert_eq!(patient.kind(), std::io::ErrorKind::WouldBlock);
    assert!(events.asked.lock().unwrap().is_empty());
}

#[test]
fn links_are_made_during_a_flood() {
    const FLOOD: usize = 2_000;
    let (b, events) = listening(&SUBJECT);
    let hello = hello_of_a_stranger(&b);
    let mut forged = hello;
    forged[50] ^= 1;
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let (b, over) = (&b, &over);
        scope.spawn(move || {
            let mut open = std::collections::VecDeque::new();
            for number in 0..FLOOD {
                let mut stream = dial(&b.1);
                let said: &[u8] = match number % 4 {
                    0 => b"",
                    1 => b"weft-tcp",
                    2 => &hello,
                    _ => &forged,
                };
                // The listener may have dropped it already.
                let _ = stream.write_all(said);
                open.push_back(stream);
                if open.len() > 300 {
                    open.pop_front();
                }
            }
            over.store(true, std::sync::atomic::Ordering::Relaxed);
        });
        let mut made = 0;
        while made < 3 || !over.load(std::sync::atomic::Ordering::Relaxed) {
            let (a, _) = listening(&SUBJECT);
            assert!(connect(&a, b).expect("a connection").is_some());
            assert_eq!(events.next_link().peer(), a.0.id);
            made += 1;
        }
    });
}
