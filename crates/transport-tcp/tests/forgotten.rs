//! Tests of links over one network on which something forgets their connections: from then on it
//! drops their packets, and passes those of new ones. They need the right to make a network
//! namespace; without it, they print a message and pass.

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use weft_transport::{Link, Local, Standing, Transport};
use weft_transport_tcp::{Encryption, Interface, TcpOptions, TcpTransport};
use weft_transport_testing::conformance::{LinkPair, Subject, deadline};
use weft_transport_testing::{Networks, enter_network};

use exchange::Exchange;

mod exchange;

const PEER_TIMEOUT: Duration = Duration::from_secs(8);
/// A new connection takes about a second on an idle machine.
const SOON: Duration = Duration::from_secs(5);

fn transport(local: Local, encryption: Encryption, peer_timeout: Duration) -> Arc<dyn Transport> {
    let options = TcpOptions {
        interface: Interface::Named("10.9.0.1".into()),
        peer_timeout,
        encryption,
        ..TcpOptions::default()
    };
    Arc::new(TcpTransport::new(local, options).expect("a port on the network"))
}

const PLAIN: Subject = Subject {
    make: |local| transport(local, Encryption::Off, PEER_TIMEOUT),
};
const ENCRYPTED: Subject = Subject {
    make: |local| transport(local, Encryption::Best, PEER_TIMEOUT),
};
/// Idle connections are probed every eight seconds.
const PATIENT: Subject = Subject {
    make: |local| transport(local, Encryption::Off, 5 * PEER_TIMEOUT),
};

/// All in one network, as one thread of the process looks after its links.
#[test]
fn forgotten_connections_are_made_anew() {
    if !enter_network() {
        return;
    }
    let Some(networks) = Networks::add() else {
        return;
    };
    for subject in [PLAIN, ENCRYPTED] {
        traffic_survives(&networks, &subject);
    }
    idle_link_survives(&networks);
    short_loss_of_the_network_makes_nothing_anew(&networks);
}

fn pair(subject: &Subject) -> LinkPair {
    let pair = LinkPair::new(subject);
    let (id, address) = (pair.b.local.id, pair.b.transport.address());
    pair.a.transport.admit(id, &address).unwrap();
    pair
}

fn renewals(pair: &LinkPair) -> u64 {
    let renewals = |link: &dyn Link| link.traffic().map_or(0, |traffic| traffic.renewals);
    renewals(&*pair.a.link).min(renewals(&*pair.b.link))
}

/// Advances until a condition holds. Returns how long that took.
fn until(exchange: &mut Exchange, what: &str, holds: impl Fn(&Exchange) -> bool) -> Duration {
    let (since, until) = (Instant::now(), deadline());
    while !holds(exchange) {
        assert!(Instant::now() < until, "{what}: {}", exchange.answered());
        exchange.advance();
    }
    since.elapsed()
}

fn traffic_survives(networks: &Networks, subject: &Subject) {
    let mut exchange = Exchange::new(pair(subject), u64::MAX);
    for turn in 1..=3 {
        let before = exchange.answered();
        until(&mut exchange, "traffic", |now| now.answered() > before + 50);
        networks.forget_connections();
        let before = exchange.answered();
        let took = until(&mut exchange, "a new connection", |now| {
            renewals(&now.pair) >= turn && now.answered() > before + 20
        });
        assert!(took < SOON, "{took:?}");
        assert_eq!(renewals(&exchange.pair), turn);
        networks.remember_connections();
    }
}

fn idle_link_survives(networks: &Networks) {
    let mut pair = pair(&PATIENT);
    thread::sleep(Duration::from_millis(300)); // until the kernel has acknowledged everything
    networks.forget_connections();
    let since = Instant::now();
    pair.until("a new connection", |pair| renewals(pair) == 1);
    let took = since.elapsed();
    assert!(took < SOON, "{took:?}");
    networks.remember_connections();
    assert_eq!(pair.a.link.standing(), Standing::Good);
    pair.b.link.message(b"through").unwrap();
    pair.until("the message", |pair| !pair.a.received.messages.is_empty());
}

fn short_loss_of_the_network_makes_nothing_anew(networks: &Networks) {
    let mut exchange = Exchange::new(pair(&PLAIN), u64::MAX);
    until(&mut exchange, "traffic", |now| now.answered() > 50);
    let lost = Instant::now();
    networks.silence(0);
    until(&mut exchange, "a while", |_| {
        lost.elapsed() > PEER_TIMEOUT / 6
    });
    networks.restore(0);
    let before = exchange.answered();
    until(&mut exchange, "traffic", |now| now.answered() > before + 50);
    assert_eq!(renewals(&exchange.pair), 0);
}
