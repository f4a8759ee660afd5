//! Connections that are reset while both ends live: the link goes on, and nothing is lost or comes
//! twice.

use std::sync::Arc;
use std::time::{Duration, Instant};

use weft_transport::{Link, LinkError, Local, Standing, Transport};
use weft_transport_tcp::{Encryption, Interface, Resumption, TcpOptions, TcpTransport};
use weft_transport_testing::conformance::{LinkPair, LinkSide, Subject, deadline};
use weft_transport_testing::reset;

use exchange::Exchange;

mod exchange;

const ROUNDS: u64 = 300;
/// An end is reported within a second.
const SOON: Duration = Duration::from_secs(1);

fn transport(local: Local, connections: usize, options: TcpOptions) -> Arc<dyn Transport> {
    let options = TcpOptions {
        interface: Interface::Named("127.0.0.1".into()),
        connections: Some(connections),
        ..options
    };
    Arc::new(TcpTransport::new(local, options).expect("a port on the loopback interface"))
}

fn kept(encryption: Encryption) -> TcpOptions {
    TcpOptions {
        resumption: Resumption::On,
        encryption,
        ..TcpOptions::default()
    }
}

const ONE: Subject = Subject {
    make: |local| transport(local, 1, kept(Encryption::Off)),
};
const SEVERAL: Subject = Subject {
    make: |local| transport(local, 3, kept(Encryption::Off)),
};
const ENCRYPTED: Subject = Subject {
    make: |local| transport(local, 1, kept(Encryption::Best)),
};
const SEVERAL_ENCRYPTED: Subject = Subject {
    make: |local| transport(local, 3, kept(Encryption::Best)),
};
const NEVER: Subject = Subject {
    make: |local| {
        let resumption = Resumption::Off;
        transport(
            local,
            1,
            TcpOptions {
                resumption,
                ..TcpOptions::default()
            },
        )
    },
};

/// Both ends keep each other's link pair, as the runtime does.
fn pair(subject: &Subject) -> LinkPair {
    let pair = LinkPair::new(subject);
    pair.a
        .transport
        .admit(pair.b.local.id, &pair.b.transport.address())
        .unwrap();
    pair
}

fn renewals(link: &dyn Link) -> u64 {
    link.traffic().map_or(0, |traffic| traffic.renewals)
}

/// Sends in both directions while one connection after the other is reset at either end.
fn check_traffic(subject: &Subject) {
    let mut exchange = Exchange::new(pair(subject), ROUNDS);
    let (mut resets, mut last, mut answered) = (0, Instant::now(), 0);
    let until = deadline() + Duration::from_secs(40);
    while exchange.answered() < 2 * ROUNDS {
        assert!(Instant::now() < until, "{}", exchange.answered());
        exchange.advance();
        // A busy machine makes progress between two resets, too.
        let since = exchange.answered();
        if last.elapsed() > Duration::from_millis(2) && since >= answered + 4 {
            (resets, answered) = (resets + 1, since);
            reset(match resets % 3 {
                0 => &*exchange.pair.b.link,
                _ => &*exchange.pair.a.link,
            });
            last = Instant::now();
        }
    }
    let pair = &exchange.pair;
    let renewed = renewals(&*pair.a.link).min(renewals(&*pair.b.link));
    assert!(renewed > 20, "{renewed} of {resets}");
}

#[test]
fn one_connection_is_made_anew() {
    check_traffic(&ONE);
}

#[test]
fn one_encrypted_connection_is_made_anew() {
    check_traffic(&ENCRYPTED);
}

#[test]
fn each_of_several_connections_is_made_anew() {
    check_traffic(&SEVERAL);
}

#[test]
fn each_of_several_encrypted_connections_is_made_anew() {
    check_traffic(&SEVERAL_ENCRYPTED);
}

fn until_gone(side: &mut LinkSide) {
    let until = deadline();
    while side.received.end.is_none() && Instant::now() < until {
        side.pump();
        std::thread::yield_now();
    }
    let end = &side.received.end;
    assert!(matches!(end, Some(LinkError::Gone(_))), "{end:?}");
}

/// With its transport, and with it nothing listens any more.
#[test]
fn death_of_either_end_is_reported_soon() {
    for dies in [false, true] {
        for subject in [ONE, SEVERAL_ENCRYPTED] {
            let LinkPair { a, b } = pair(&subject);
            let (dead, mut left) = if dies { (a, b) } else { (b, a) };
            let since = Instant::now();
            drop(dead);
            until_gone(&mut left);
            assert!(since.elapsed() < SOON, "{:?}", since.elapsed());
        }
    }
}

#[test]
fn death_after_a_reset_is_reported_soon() {
    for dies in [false, true] {
        let LinkPair { a, b } = pair(&ONE);
        let (dead, mut left) = if dies { (a, b) } else { (b, a) };
        reset(&*left.link);
        left.pump();
        let since = Instant::now();
        drop(dead);
        until_gone(&mut left);
        assert!(since.elapsed() < SOON, "{:?}", since.elapsed());
    }
}

/// Its endpoint lives.
#[test]
fn end_that_gave_up_the_link_is_reported_soon() {
    for gives_up in [false, true] {
        let LinkPair { a, b } = pair(&ONE);
        let (given_up, mut left) = if gives_up { (a, b) } else { (b, a) };
        let LinkSide {
            transport: _listens,
            link,
            ..
        } = given_up;
        let since = Instant::now();
        drop(link);
        until_gone(&mut left);
        assert!(since.elapsed() < SOON, "{:?}", since.elapsed());
    }
}

#[test]
fn goodbye_that_was_lost_is_said_again() {
    for closes in [false, true] {
        for subject in [ONE, SEVERAL, ENCRYPTED] {
            let LinkPair { a, b } = pair(&subject);
            let (closing, mut other) = if closes { (a, b) } else { (b, a) };
            let message = vec![7; 60_000];
            for _ in 0..20 {
                closing.link.message(&message).unwrap();
            }
            closing.link.close();
            reset(&*closing.link);
            let until = deadline();
            while other.received.end.is_none() && Instant::now() < until {
                other.pump();
            }
            let end = &other.received.end;
            assert!(matches!(end, Some(LinkError::Left)), "{end:?}");
            assert_eq!(other.received.messages.len(), 20);
        }
    }
}

#[test]
fn link_is_silent_while_a_connection_is_made_anew() {
    let mut pair = pair(&ONE);
    assert_eq!(pair.a.link.standing(), Standing::Good);
    reset(&*pair.a.link);
    pair.a.link.message(b"through").unwrap();
    pair.a.pump();
    pair.until("the message", |pair| !pair.b.received.messages.is_empty());
    pair.until("rest", |pair| pair.a.link.standing() == Standing::Good);
    assert_eq!(renewals(&*pair.a.link), 1);
}

#[test]
fn nothing_is_made_anew_where_that_is_off() {
    let mut pair = pair(&NEVER);
    reset(&*pair.a.link);
    let since = Instant::now();
    until_gone(&mut pair.a);
    until_gone(&mut pair.b);
    assert!(since.elapsed() < SOON, "{:?}", since.elapsed());
}
