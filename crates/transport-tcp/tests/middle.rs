//! Tests of a man in the middle, who forwards, records and changes all bytes of a link.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};

use weft_transport::{LinkError, Local, POOL_HEADER, RegionKey, Signal, Submission, Transport};
use weft_transport_tcp::{Cipher, Encryption, Interface, TcpOptions, TcpTransport};
use weft_transport_testing::conformance::{
    LinkPair, LinkSide, Received, Subject, TestMemory, deadline, listening,
};

/// The bytes that a caller sends before its link is established.
const HELLO_AND_CONFIRMATION: usize = 140 + 18;
/// The overhead of a record: its length before, and a tag behind its bytes.
const LENGTH_BYTES: usize = 2;
const TAG_BYTES: usize = 16;
/// The most plain bytes of one record.
const RECORD_PLAIN_MAX: usize = 16 << 10;
const SECRET: &[u8] = b"the gradient of the seventh layer";
const FLAG: u64 = POOL_HEADER;
const DATA: u64 = POOL_HEADER + 4096;
const BYTES: usize = 1 << 20;

const PLAIN: Subject = Subject {
    make: |local| transport(local, Encryption::Off),
};
const AES_GCM: Subject = Subject {
    make: |local| transport(local, Encryption::Only(Cipher::AesGcm)),
};
const CHACHA: Subject = Subject {
    make: |local| transport(local, Encryption::Only(Cipher::ChaCha20Poly1305)),
};

fn transport(local: Local, encryption: Encryption) -> Arc<dyn Transport> {
    let options = TcpOptions {
        interface: Interface::Named("127.0.0.1".into()),
        connections: Some(1),
        encryption,
        ..TcpOptions::default()
    };
    Arc::new(TcpTransport::new(local, options).expect("a port on the loopback interface"))
}

/// Changes the next piece from the caller.
type Tamper = Box<dyn FnMut(Vec<u8>) -> Vec<u8> + Send>;

/// Cuts the caller's bytes into the handshake and then records, and passes on the result of
/// `tamper` for each record. Without `tamper`, forwards all bytes unchanged.
fn forward(
    mut from: TcpStream,
    mut to: TcpStream,
    recorded: &Mutex<Vec<u8>>,
    mut tamper: Option<Tamper>,
) {
    let mut received = Vec::new();
    let mut handshake = HELLO_AND_CONFIRMATION;
    let mut bytes = vec![0; 64 << 10];
    while let Ok(read @ 1..) = from.read(&mut bytes) {
        recorded.lock().unwrap().extend(&bytes[..read]);
        received.extend(&bytes[..read]);
        let shaken = handshake.min(received.len());
        handshake -= shaken;
        let mut passed: Vec<u8> = received.drain(..shaken).collect();
        match &mut tamper {
            None => passed.append(&mut received),
            Some(tamper) => {
                while let Some(record) = next_record(&mut received) {
                    passed.extend(tamper(record));
                }
            }
        }
        if to.write_all(&passed).is_err() {
            return;
        }
    }
    let _ = to.shutdown(std::net::Shutdown::Both);
}

fn next_record(received: &mut Vec<u8>) -> Option<Vec<u8>> {
    let length = received
        .first_chunk()
        .map(|bytes| u16::from_le_bytes(*bytes))?;
    let record = LENGTH_BYTES + usize::from(length) + TAG_BYTES;
    (received.len() >= record).then(|| received.drain(..record).collect())
}

/// A pair of linked endpoints with a man in the middle, and the caller's bytes that he has seen.
fn pair(subject: &Subject, tamper: Option<Tamper>) -> (LinkPair, Arc<Mutex<Vec<u8>>>) {
    let recorded = Arc::new(Mutex::new(Vec::new()));
    let (b, events) = listening(subject);
    let (a, _) = listening(subject);
    b.1.admit(a.0.id, &a.1.address()).unwrap();
    let middle = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut address = b.1.address();
    let port = u16::from_le_bytes([address[0], address[1]]);
    address[..2].copy_from_slice(&middle.local_addr().unwrap().port().to_le_bytes());
    let seen = recorded.clone();
    std::thread::spawn(move || {
        let (caller, _) = middle.accept().expect("a caller");
        let listener = TcpStream::connect(("127.0.0.1", port)).expect("the port is open");
        let mut back = (listener.try_clone().unwrap(), caller.try_clone().unwrap());
        std::thread::spawn(move || {
            let _ = std::io::copy(&mut back.0, &mut back.1);
            let _ = back.1.shutdown(std::net::Shutdown::Both);
        });
        forward(caller, listener, &seen, tamper);
    });
    let never = AtomicBool::new(false);
    let link = a.1.connect(b.0.id, &address, deadline(), &never);
    let side = |(local, transport), link| LinkSide {
        local,
        transport,
        link,
        received: Received::default(),
    };
    let pair = LinkPair {
        a: side(a, link.unwrap().expect("no yield")),
        b: side(b, events.next_link()),
    };
    let all = POOL_HEADER..DATA + 2 * BYTES as u64;
    pair.b.link.grant(RegionKey::POOL, all).expect("a grant");
    (pair, recorded)
}

fn secrets() -> Vec<u8> {
    SECRET.iter().copied().cycle().take(BYTES).collect()
}

/// Redirects the payload to memory of the receiver, and puts as much of it as possible.
fn put(pair: &mut LinkPair, payload: &[u8]) -> TestMemory {
    let target = pair.b.memory(&[&vec![0; BYTES]]);
    let place = target.target();
    let redirections = pair.b.link.redirections().expect("links over TCP redirect");
    redirections.redirect(RegionKey::POOL, DATA, place);
    let memory = pair.a.memory(&[payload]);
    let signal = Signal {
        offset: FLAG,
        value: 1,
    };
    let source = memory.source();
    let put = (pair.a.link).put(RegionKey::POOL, DATA, &source, Some(signal));
    let put = put.expect("a good link");
    pair.until("the payload or the end", |pair| {
        pair.b.word(FLAG) == 1 || pair.b.received.end.is_some()
    });
    // The source stays until nothing reads it any more.
    pair.until("the source", |pair| match put {
        Submission::UnderWay(ticket) => pair.a.link.completed(ticket).unwrap_or(true),
        _ => true,
    });
    target
}

#[test]
fn an_observer_of_all_packets_reads_nothing() {
    let sees = |subject: &Subject| {
        let (mut pair, recorded) = pair(subject, None);
        let target = put(&mut pair, &secrets());
        assert!(target.bytes() == secrets());
        pair.a.link.message(SECRET).unwrap();
        pair.until("a message", |pair| {
            pair.b.received.messages == [SECRET.to_vec()]
        });
        let recorded = recorded.lock().unwrap();
        assert!(recorded.len() > BYTES, "all of it went through the middle");
        recorded
            .windows(SECRET.len() / 2)
            .any(|seen| seen == &SECRET[..SECRET.len() / 2])
    };
    assert!(sees(&PLAIN), "plain data must be visible");
    assert!(!sees(&AES_GCM));
    assert!(!sees(&CHACHA));
}

const BEFORE: usize = 20;

/// Tampers after `good_records` records. The link must end, and the receiver must hold only bytes
/// that were sent, as far as they arrived in good records.
fn check_ended(good_records: usize, tamper: fn(&mut Vec<Vec<u8>>) -> Vec<u8>) {
    for subject in [AES_GCM, CHACHA] {
        let mut number = 0;
        let mut held = Vec::new();
        let tamper = move |record: Vec<u8>| {
            number += 1;
            if number <= BEFORE {
                return record;
            }
            held.push(record);
            tamper(&mut held)
        };
        let (mut pair, _) = pair(&subject, Some(Box::new(tamper)));
        let target = put(&mut pair, &secrets());
        let end = pair.b.received.end.take();
        let Some(LinkError::Gone(message)) = end else {
            panic!("ended by {end:?}");
        };
        assert!(
            message.contains("bytes were changed, dropped or repeated on the way"),
            "{message}"
        );
        assert_eq!(pair.b.word(FLAG), 0, "the signal was stored");
        let held = target.bytes();
        let good = held.iter().take_while(|byte| **byte != 0).count();
        assert!(good <= good_records * RECORD_PLAIN_MAX);
        assert!(held[..good] == secrets()[..good]);
        assert!(held[good..].iter().all(|byte| *byte == 0));
        pair.until("the other end", |pair| pair.a.received.end.is_some());
    }
}

#[test]
fn a_flipped_bit_ends_the_link_unwritten() {
    check_ended(BEFORE, |held| {
        let mut record = held.pop().unwrap();
        let middle = record.len() / 2;
        record[middle] ^= 1;
        record
    });
}

#[test]
fn a_record_that_is_dropped_ends_the_link() {
    check_ended(BEFORE, |held| match held.len() {
        1 => Vec::new(),
        _ => held.pop().unwrap(),
    });
}

#[test]
fn a_record_that_is_repeated_ends_the_link() {
    check_ended(BEFORE + 1, |held| held.pop().unwrap().repeat(2));
}

#[test]
fn reordered_records_end_the_link() {
    check_ended(BEFORE, |held| match held.len() {
        1 => Vec::new(),
        _ => {
            held.reverse();
            std::mem::take(held).concat()
        }
    });
}

#[test]
fn record_of_impossible_length_ends_the_link() {
    check_ended(BEFORE, |_| vec![0; 40]);
}

#[test]
fn a_cut_link_has_no_goodbye() {
    // Cutting a connection must not look like a close by the peer.
    let end = Box::new(|_: Vec<u8>| Vec::new());
    let (mut pair, _) = pair(&AES_GCM, Some(end));
    pair.a.link.message(b"hello").unwrap();
    drop(pair.a.link);
    let until = deadline();
    while pair.b.received.end.is_none() && std::time::Instant::now() < until {
        pair.b.pump();
    }
    let end = pair.b.received.end;
    assert!(matches!(end, Some(LinkError::Gone(_))), "{end:?}");
}

#[test]
fn forged_address_cannot_disable_encryption() {
    for (caller, listener) in [(PLAIN, AES_GCM), (AES_GCM, PLAIN), (CHACHA, AES_GCM)] {
        let (b, events) = listening(&listener);
        let (a, _) = listening(&caller);
        b.1.admit(a.0.id, &a.1.address()).unwrap();
        let never = AtomicBool::new(false);
        let call = |address: &[u8]| {
            let called = a.1.connect(b.0.id, address, deadline(), &never);
            called.map(drop).expect_err("no link").to_string()
        };
        let why = call(&b.1.address());
        assert!(why.contains("must be the same everywhere"), "{why}");
        // A caller that is deceived about the other's encryption gets no answer.
        let mut forged = b.1.address();
        forged[34] = a.1.address()[34];
        let why = call(&forged);
        assert!(why.contains("during the handshake"), "{why}");
        assert!(events.asked.lock().unwrap().is_empty());
    }
}
