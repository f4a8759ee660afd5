//! Tests of calls for connections of a link by others than its peer, and of calls that come late.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use weft_transport::{EndpointId, Link, LinkError, Local, Transport};
use weft_transport_testing::conformance::{Events, deadline};

use crate::address::TcpAddress;
use crate::dialer::Dialer;
use crate::encryption::Encryption;
use crate::handshake::{LinkPart, Position, Purpose, RenewalVerdict};
use crate::interface::Interface;
use crate::lock::lock;
use crate::patience::Patience;
use crate::transport::{TcpOptions, TcpTransport};
use crate::ways::Way;

/// An endpoint, with what the crate knows of it.
struct Party {
    local: Local,
    transport: TcpTransport,
    events: Arc<Events>,
}

impl Party {
    fn new() -> Self {
        let local = Local::create(1 << 20).unwrap();
        let options = TcpOptions {
            interface: Interface::Named("127.0.0.1".into()),
            encryption: Encryption::Best,
            ..TcpOptions::default()
        };
        let transport = TcpTransport::new(local.clone(), options).unwrap();
        let events = Arc::new(Events::default());
        transport.listen(events.clone()).unwrap();
        Party {
            local,
            transport,
            events,
        }
    }

    fn address(&self) -> TcpAddress {
        TcpAddress::decode(&self.transport.address()).unwrap()
    }

    fn admit(&self, other: &Party) {
        let address = other.transport.address();
        self.transport.admit(other.local.id, &address).unwrap();
    }

    /// Calls another for a connection of a link.
    fn call(&self, other: &Party, part: LinkPart) -> Result<RenewalVerdict, LinkError> {
        self.call_as(&self.transport.dialer, other, part)
    }

    fn call_as(
        &self,
        dialer: &Dialer,
        other: &Party,
        part: LinkPart,
    ) -> Result<RenewalVerdict, LinkError> {
        let position = Position {
            received: 0,
            kept: 0,
        };
        let never = AtomicBool::new(false);
        let patience = Patience {
            deadline: deadline(),
            cancel: &never,
        };
        let to = (other.local.id, &other.address());
        call_again(dialer, to, part, position, patience)
    }
}

fn call_again(
    dialer: &Dialer,
    to: (EndpointId, &TcpAddress),
    part: LinkPart,
    position: Position,
    patience: Patience<'_>,
) -> Result<RenewalVerdict, LinkError> {
    let ways = Way::all(0, &dialer.address, to.1);
    let called = dialer.call(to, part, &ways, patience)?;
    called
        .report(position, patience)
        .map(|(verdict, _)| verdict)
}

/// Two endpoints with a link, which the first has called for, and the number of that call.
fn linked() -> ([Party; 2], [Arc<dyn Link>; 2], u64) {
    let [a, b] = [Party::new(), Party::new()];
    b.admit(&a);
    let never = AtomicBool::new(false);
    let address = b.transport.address();
    let link = a
        .transport
        .connect(b.local.id, &address, deadline(), &never);
    let links = [link.unwrap().unwrap(), b.events.next_link()];
    let names = b.transport.known.names();
    assert_eq!(names.len(), 1);
    let (peer, call) = names[0];
    assert_eq!(peer, a.local.id);
    ([a, b], links, call)
}

fn part(call: u64, purpose: Purpose, epoch: u32) -> LinkPart {
    let encrypted = Encryption::Best.offer();
    LinkPart {
        call,
        connection: 0,
        cipher: encrypted.common(encrypted).unwrap(),
        purpose,
        epoch,
    }
}

fn renewals(link: &Arc<dyn Link>) -> u64 {
    link.traffic().unwrap().renewals
}

#[test]
fn another_member_cannot_resume_a_link() {
    let ([a, b], links, call) = linked();
    let member = Party::new();
    for end in [&a, &b] {
        end.admit(&member);
        for purpose in [Purpose::Renew, Purpose::Knock] {
            let verdict = member.call(end, part(call, purpose, 1)).unwrap();
            assert_eq!(verdict, RenewalVerdict::Unknown);
        }
    }
    // With the name of the link's peer.
    let forger = Dialer {
        id: a.local.id,
        keys: member.transport.dialer.keys.clone(),
        options: member.transport.dialer.options,
        address: member.address(),
    };
    let refused = member.call_as(&forger, &b, part(call, Purpose::Renew, 1));
    assert!(matches!(refused, Err(LinkError::Refused(_))), "{refused:?}");
    check_link(&links);
}

/// It is undisturbed.
fn check_link(links: &[Arc<dyn Link>; 2]) {
    links[0].message(b"still here").unwrap();
    let mut received = weft_transport_testing::conformance::Received::default();
    let until = deadline();
    while received.messages.is_empty() && std::time::Instant::now() < until {
        links[0].flush().unwrap();
        links[1].receive(&mut received).unwrap();
    }
    assert_eq!(received.messages, [b"still here"]);
    assert_eq!(links.each_ref().map(renewals), [0, 0]);
}

#[test]
fn stranger_gets_no_answer_about_a_link() {
    let ([_a, b], links, call) = linked();
    let stranger = Party::new();
    let never = AtomicBool::new(false);
    let patience = Patience {
        deadline: std::time::Instant::now() + std::time::Duration::from_millis(300),
        cancel: &never,
    };
    let position = Position {
        received: 0,
        kept: 0,
    };
    let to = (b.local.id, &b.address());
    let dialer = &stranger.transport.dialer;
    let refused = call_again(
        dialer,
        to,
        part(call, Purpose::Renew, 1),
        position,
        patience,
    );
    assert!(
        matches!(refused, Err(LinkError::TimedOut(_))),
        "{refused:?}"
    );
    check_link(&links);
}

/// The end that made the link calls for its connections, and nobody knocks at the other one.
#[test]
fn peer_in_the_wrong_role_cannot_resume_a_link() {
    let ([a, b], links, call) = linked();
    a.admit(&b);
    let verdict = b.call(&a, part(call, Purpose::Renew, 1)).unwrap();
    assert_eq!(verdict, RenewalVerdict::Unknown);
    let verdict = a.call(&b, part(call, Purpose::Knock, 0)).unwrap();
    assert_eq!(verdict, RenewalVerdict::Unknown);
    check_link(&links);
}

#[test]
fn calls_and_knocks_that_come_late_have_no_effect() {
    let ([a, b], links, call) = linked();
    a.admit(&b);
    // A knock about a former socket.
    let verdict = b.call(&a, part(call, Purpose::Knock, 7)).unwrap();
    assert_eq!(verdict, RenewalVerdict::Known);
    // A call with the number of the present socket gets no verdict.
    let refused = a.call(&b, part(call, Purpose::Renew, 0));
    assert!(matches!(refused, Err(LinkError::Refused(_))), "{refused:?}");
    check_link(&links);
    // Nor is there another connection, or another link.
    let other = LinkPart {
        connection: 5,
        ..part(call, Purpose::Renew, 9)
    };
    assert!(matches!(a.call(&b, other), Err(LinkError::Refused(_))));
    let verdict = a.call(&b, part(call + 1, Purpose::Renew, 9)).unwrap();
    assert_eq!(verdict, RenewalVerdict::Unknown);
    check_link(&links);
}

/// A member that claims to have received what was never sent gets nothing, and the link ends.
#[test]
fn impossible_position_ends_the_link() {
    let ([a, b], links, call) = linked();
    let never = AtomicBool::new(false);
    let patience = Patience {
        deadline: deadline(),
        cancel: &never,
    };
    let position = Position {
        received: 1 << 40,
        kept: 0,
    };
    let to = (b.local.id, &b.address());
    let dialer = &a.transport.dialer;
    let called = call_again(
        dialer,
        to,
        part(call, Purpose::Renew, 1),
        position,
        patience,
    );
    assert_eq!(called.unwrap(), RenewalVerdict::Unknown);
    let mut received = weft_transport_testing::conformance::Received::default();
    let until = deadline();
    let end = loop {
        // The link ends behind the answer.
        match links[1].receive(&mut received) {
            Err(end) => break end,
            Ok(()) => assert!(std::time::Instant::now() < until),
        }
    };
    assert!(end.to_string().contains("not kept"), "{end}");
}

impl crate::connection::KnownLinks {
    fn names(&self) -> Vec<(EndpointId, u64)> {
        lock(&self.0).keys().copied().collect()
    }
}
