use std::net::{TcpListener, TcpStream};

use weft_transport::fork::Descriptor;

use super::*;
use crate::congestion::CongestionChoice;
use crate::encryption::Cipher;
use crate::records::Records;
use crate::socket::{SocketOptions, poll, poll_entry};

const PATIENCE: Duration = Duration::from_secs(5);

fn link(stream: TcpStream, [outgoing, incoming]: [&[u8; 32]; 2]) -> Arc<TcpLink> {
    let options = SocketOptions {
        peer_timeout: PATIENCE,
        traffic_class: Default::default(),
        congestion: CongestionChoice::default(),
    };
    let records = Records::new(Cipher::AesGcm, outgoing, incoming);
    let socket = Socket::new(Descriptor::make(|| Ok(stream)).unwrap(), options)
        .unwrap()
        .seal(Some(records));
    let local = Local::create(1 << 20).unwrap();
    let regions = Regions::new(local.pool.clone());
    TcpLink::new(
        &local,
        &regions,
        EndpointId(1),
        vec![socket],
        PATIENCE,
        (Resumption::Auto, None),
    )
    .unwrap()
}

/// Data that was read ahead makes no descriptor ready.
#[test]
fn data_read_ahead_is_delivered_without_an_event() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let from = link(stream, [&[1; 32], &[2; 32]]);
    let to = link(listener.accept().unwrap().0, [&[2; 32], &[1; 32]]);
    let message = [7; 50_000];
    from.message(&message).unwrap();
    while from.flush().unwrap() == FlushState::Pending {}
    // A budget that the first bytes use up.
    let received = loop {
        if let Intake::Message(received) = to.receive_from(0, &mut 1).unwrap() {
            break received;
        }
        let mut watched = [poll_entry(to.descriptor().unwrap(), libc::POLLIN)];
        poll(&mut watched, PATIENCE).unwrap();
        assert_ne!(watched[0].revents, 0, "the rest would never be received");
    };
    assert_eq!(received, message);
}
