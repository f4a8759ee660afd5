//! Tests of unauthorised connections at the port: dropped, without delay for others.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::Duration;

use weft_transport::Transport;
use weft_transport::conformance::{Subject, connect, listening};
use weft_transport_tcp::{Interface, TcpOptions, TcpTransport};

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

/// What the listener sends before it ends the connection; a reset counts as an end.
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
fn whoever_begins_wrongly_is_dropped_at_once_without_an_answer() {
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
fn the_silent_do_not_hold_up_the_others() {
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
