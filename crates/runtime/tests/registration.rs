//! Tests of registered memory: over the strict loopback, which needs registration like verbs, and
//! over transports that do not.

mod ranks;

use ranks::Setup;
use ranks::registering::{
    check_zero_bytes_registration, device_registration_may_end_while_it_is_sent,
    devices_memory_is_sent_by_its_file, handles_come_before_strips,
    large_sums_are_registered_while_they_are_sent, messages_and_puts_are_sent_in_place,
    registration_may_end_while_its_memory_is_sent, sums_are_sent_in_place,
};
use weft_runtime::TransportChoice;
use weft_transport::TransportKind;
use weft_transport_testing::strict;

const ALGORITHMS: [&str; 4] = ["ring", "direct", "halving-doubling", "double-tree"];

/// Setups, each with the kind of links that needs registration.
fn setups() -> [(Setup, Option<TransportKind>); 4] {
    [
        (
            TransportChoice::Custom(strict).into(),
            Some(TransportKind::Custom),
        ),
        (TransportChoice::Tcp.into(), None),
        (TransportChoice::Shm.into(), None),
        (Setup::on_hosts(&[0, 0, 1]), None),
    ]
}

#[test]
fn collectives_send_registered_memory_without_a_copy() {
    for (setup, needing) in setups() {
        sums_are_sent_in_place(&setup, 3, needing, &ALGORITHMS);
    }
}

#[test]
fn handles_may_be_dropped_during_a_collective() {
    registration_may_end_while_its_memory_is_sent(&TransportChoice::Custom(strict).into(), 3);
}

#[test]
fn messages_and_puts_send_registered_memory_without_a_copy() {
    for (mut setup, _) in setups() {
        setup.hosts = setup.hosts.map(|_| vec![0, 1]);
        messages_and_puts_are_sent_in_place(&setup);
    }
}

#[test]
fn messages_and_puts_send_a_devices_memory_by_its_file() {
    for (mut setup, _) in setups() {
        setup.hosts = setup.hosts.map(|_| vec![0, 1]);
        devices_memory_is_sent_by_its_file(&setup);
    }
    device_registration_may_end_while_it_is_sent(&TransportChoice::Custom(strict).into());
}

#[test]
fn zero_bytes_can_be_registered() {
    for (mut setup, _) in setups() {
        setup.hosts = setup.hosts.map(|_| vec![0, 1]);
        check_zero_bytes_registration(&setup);
    }
}

#[test]
fn large_memory_is_registered_while_it_is_sent() {
    for ranks in [2, 3] {
        large_sums_are_registered_while_they_are_sent(
            &TransportChoice::Custom(strict).into(),
            ranks,
        );
    }
}

#[test]
fn memory_with_a_handle_is_not_registered_again() {
    handles_come_before_strips(&TransportChoice::Custom(strict).into());
}
