//! Reports of connections that broke and were made anew under their links.

use std::collections::HashMap;
use std::io::{self, Write};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use weft_flight::FlightRecorder;
use weft_transport::EndpointId;

use super::address::EndpointAddress;
use crate::lock::lock;

/// This many are printed each; of later ones, those whose number is a power of two.
const PRINTED_MAX: u64 = 4;

/// The renewals of an endpoint's connections.
pub(super) struct Renewals {
    /// The peers, as users know them.
    peers: Mutex<HashMap<EndpointId, String>>,
    flight: Arc<FlightRecorder>,
    count: AtomicU64,
}

impl Renewals {
    pub(super) fn new(flight: Arc<FlightRecorder>) -> Self {
        Self {
            peers: Mutex::default(),
            flight,
            count: AtomicU64::new(0),
        }
    }

    /// Notes who a peer is.
    pub(super) fn name(&self, peer: &EndpointAddress) {
        let name = format!("process {} on {}", peer.pid, peer.host_name);
        lock(&self.peers).insert(peer.id, name);
    }

    /// Reports a renewal: in the flight record, and on standard error.
    pub(super) fn report(&self, peer: EndpointId, after: Duration, why: &str) {
        let name = lock(&self.peers).get(&peer).cloned();
        let name = name.unwrap_or_else(|| "a peer".into());
        let took = after.as_secs_f64();
        let text = format!(
            "the connection to {name} was made anew after {took:.2} s, without loss: {why}"
        );
        self.flight.note_renewal(&text);
        let number = self.count.fetch_add(1, Ordering::Relaxed) + 1;
        if number <= PRINTED_MAX || number.is_power_of_two() {
            // Nobody can be notified that standard error is closed.
            let _ = writeln!(io::stderr(), "weft: {text} (renewal {number})");
        }
    }
}
