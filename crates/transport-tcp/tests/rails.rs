//! Tests of links over several networks, of which one falls silent, and answers again. They need
//! the right to make a network namespace; without it, they print a message and pass.

use std::sync::Arc;
use std::time::{Duration, Instant};

use weft_transport::{Link, LinkError, Local, Standing, Transport};
use weft_transport_tcp::{Encryption, Interface, TcpOptions, TcpTransport};
use weft_transport_testing::conformance::{LinkPair, Subject, deadline};
use weft_transport_testing::{Networks, enter_network};

use exchange::Exchange;

mod exchange;

const PEER_TIMEOUT: Duration = Duration::from_secs(4);
/// A shift takes less than half a second on an idle machine.
const SOON: Duration = Duration::from_secs(2);

fn transport(local: Local, encryption: Encryption) -> Arc<dyn Transport> {
    let options = TcpOptions {
        interface: Interface::Named("10.9.0.1,10.9.1.1".into()),
        peer_timeout: PEER_TIMEOUT,
        encryption,
        ..TcpOptions::default()
    };
    Arc::new(TcpTransport::new(local, options).expect("a port on both networks"))
}

const PLAIN: Subject = Subject {
    make: |local| transport(local, Encryption::Off),
};
const ENCRYPTED: Subject = Subject {
    make: |local| transport(local, Encryption::Best),
};

/// All in one network, as one thread of the process looks after its links.
#[test]
fn loss_and_return_of_networks() {
    if !enter_network() {
        return;
    }
    let Some(networks) = Networks::add() else {
        return;
    };
    for number in [0, 1] {
        for subject in [PLAIN, ENCRYPTED] {
            traffic_survives_the_loss_of_a_network(&networks, number, &subject);
        }
        idle_connection_is_shifted(&networks, number);
        idle_connection_follows_that_of_another_link(&networks, number);
        goodbye_is_said_over_the_other_network(&networks, number);
        process_that_ends_is_lost_soon(&networks, number);
        network_that_is_lost_at_first_is_used_later(&networks, number);
    }
    short_loss_of_all_networks_does_no_harm(&networks);
    host_without_a_network_is_lost(&networks);
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

fn traffic_survives_the_loss_of_a_network(networks: &Networks, number: usize, subject: &Subject) {
    let mut exchange = Exchange::new(pair(subject), u64::MAX);
    for turn in 1.. {
        let before = exchange.answered();
        until(&mut exchange, "traffic", |now| now.answered() > before + 50);
        networks.silence(number);
        let renewed = renewals(&exchange.pair);
        // Everything under way is answered, over whichever connection it went.
        let before = exchange.answered();
        let took = until(&mut exchange, "a shift", |now| {
            renewals(&now.pair) > renewed && now.answered() > before + 20
        });
        assert!(took < SOON, "{took:?}");
        let before = exchange.answered();
        until(&mut exchange, "traffic", |now| now.answered() > before + 50);
        networks.restore(number);
        if turn == 2 {
            break;
        }
        let renewed = renewals(&exchange.pair);
        until(&mut exchange, "its return", |now| {
            renewals(&now.pair) > renewed
        });
    }
}

fn idle_connection_is_shifted(networks: &Networks, number: usize) {
    let mut pair = pair(&PLAIN);
    networks.silence(number);
    pair.until("a shift", |pair| renewals(pair) == 1);
    assert_eq!(pair.a.link.standing(), Standing::Good);
    networks.restore(number);
    pair.until("its return", |pair| renewals(pair) == 2);
    pair.a.link.message(b"through").unwrap();
    pair.until("the message", |pair| !pair.b.received.messages.is_empty());
}

fn idle_connection_follows_that_of_another_link(networks: &Networks, number: usize) {
    let mut busy = Exchange::new(pair(&PLAIN), u64::MAX);
    let mut idle = pair(&PLAIN);
    until_answered(&mut busy, 50);
    idle.a.link.message(b"the last").unwrap();
    idle.until("a message", |pair| !pair.b.received.messages.is_empty());
    networks.silence(number);
    until(&mut busy, "a shift", |now| renewals(&now.pair) == 1);
    let took = until(&mut busy, "another", |_| renewals(&idle) == 1);
    // Otherwise, it is probed after a second.
    assert!(took < Duration::from_millis(500), "{took:?}");
    networks.restore(number);
    until(&mut busy, "their return", |now| {
        renewals(&now.pair) == 2 && renewals(&idle) == 2
    });
}

fn goodbye_is_said_over_the_other_network(networks: &Networks, number: usize) {
    for closes in [false, true] {
        let LinkPair { a, b } = pair(&PLAIN);
        let (closing, mut other) = if closes { (a, b) } else { (b, a) };
        networks.silence(number);
        closing.link.message(b"the last").unwrap();
        closing.link.close();
        let (since, until) = (Instant::now(), deadline());
        while other.received.end.is_none() && Instant::now() < until {
            other.pump();
        }
        let end = &other.received.end;
        assert!(matches!(end, Some(LinkError::Left)), "{end:?}");
        assert!(since.elapsed() < SOON, "{:?}", since.elapsed());
        assert_eq!(other.received.messages, [b"the last"]);
        networks.restore(number);
    }
}

fn process_that_ends_is_lost_soon(networks: &Networks, number: usize) {
    for dies in [false, true] {
        let mut pair = pair(&PLAIN);
        networks.silence(number);
        pair.until("a shift", |pair| renewals(pair) == 1);
        let LinkPair { a, b } = pair;
        let (dead, mut left) = if dies { (a, b) } else { (b, a) };
        let (since, until) = (Instant::now(), deadline());
        drop(dead);
        while left.received.end.is_none() && Instant::now() < until {
            left.pump();
        }
        let end = &left.received.end;
        assert!(matches!(end, Some(LinkError::Gone(_))), "{end:?}");
        assert!(since.elapsed() < Duration::from_secs(1), "{end:?}");
        networks.restore(number);
    }
}

fn network_that_is_lost_at_first_is_used_later(networks: &Networks, number: usize) {
    // Those of the pairs before may still be closing.
    let (closing, until) = (deadline(), |number| networks.connections(number) > 0);
    while until(0) || until(1) {
        assert!(Instant::now() < closing, "connections stay");
    }
    networks.silence(number);
    let since = Instant::now();
    let mut pair = pair(&PLAIN);
    assert!(since.elapsed() < SOON, "{:?}", since.elapsed());
    assert_eq!(networks.connections(1 - number), 2);
    networks.restore(number);
    pair.until("its use", |_| networks.connections(number) == 1);
    pair.until("its start", |pair| renewals(pair) == 1);
    assert_eq!(networks.connections(1 - number), 1);
    let mut exchange = Exchange::new(pair, u64::MAX);
    until_answered(&mut exchange, 50);
}

fn until_answered(exchange: &mut Exchange, more: u64) {
    let before = exchange.answered();
    until(exchange, "traffic", |now| now.answered() > before + more);
}

fn short_loss_of_all_networks_does_no_harm(networks: &Networks) {
    let mut exchange = Exchange::new(pair(&PLAIN), u64::MAX);
    until(&mut exchange, "traffic", |now| now.answered() > 50);
    let lost = Instant::now();
    for number in [0, 1] {
        networks.silence(number);
    }
    until(&mut exchange, "a while", |_| {
        lost.elapsed() > PEER_TIMEOUT / 4
    });
    for number in [0, 1] {
        networks.restore(number);
    }
    let before = exchange.answered();
    until(&mut exchange, "traffic", |now| now.answered() > before + 50);
}

fn host_without_a_network_is_lost(networks: &Networks) {
    let mut pair = pair(&PLAIN);
    for number in [0, 1] {
        networks.silence(number);
    }
    let since = Instant::now();
    pair.a.link.message(b"lost").unwrap();
    pair.until("both ends", |pair| {
        pair.a.received.end.is_some() && pair.b.received.end.is_some()
    });
    let took = since.elapsed();
    for end in [&pair.a.received.end, &pair.b.received.end] {
        assert!(matches!(end, Some(LinkError::Gone(_))), "{end:?}");
    }
    assert!(
        PEER_TIMEOUT / 2 < took && took < PEER_TIMEOUT * 2,
        "{took:?}"
    );
    for number in [0, 1] {
        networks.restore(number);
    }
}
