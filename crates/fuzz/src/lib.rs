//! Fuzz targets: all readers of untrusted bytes from strangers, peers or files.
//!
//! `cargo test` runs each on the corpus and on inputs near it; `make fuzz` runs each under
//! libFuzzer, by the binaries in `fuzz/`. A new reader of untrusted bytes gets a line in
//! [`TARGETS`].
#![warn(clippy::missing_errors_doc)]
#![forbid(unsafe_code)]

use weft_runtime::fuzzing as runtime;
use weft_transport::fuzzing as transport;
use weft_transport_rdma::fuzzing as rdma;
use weft_transport_shm::fuzzing as shm;
use weft_transport_tcp::fuzzing as tcp;

/// A function that accepts any bytes, and panics if an invariant does not hold.
pub type Target = fn(&[u8]);

/// The targets, by the names of their corpora.
pub const TARGETS: [(&str, Target); 18] = [
    ("control-message", runtime::control_message),
    ("endpoint-address", runtime::address),
    ("messages-of-a-peer", runtime::messages_of_a_peer),
    ("rank-hello", runtime::rank_hello),
    ("rdma-frame", rdma::frame),
    ("rdma-control", rdma::control),
    ("ring", transport::ring),
    ("roster", runtime::roster),
    ("schedule-text", schedule_text),
    ("shm-address", shm::address),
    ("shm-hello", shm::hello),
    ("store-reply", runtime::store_reply),
    ("store-request", runtime::store_request),
    ("store-tls", runtime::store_tls),
    ("tcp-address", tcp::address),
    ("tcp-frame", tcp::frame),
    ("tcp-hello", tcp::hello),
    ("tcp-records", tcp::records),
];

/// The text of schedules. A schedule that can be parsed must survive printing and parsing.
fn schedule_text(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else {
        return;
    };
    if let Ok(schedules) = weft_schedule::parse(text) {
        let printed = weft_schedule::print(&schedules);
        assert_eq!(weft_schedule::parse(&printed), Ok(schedules), "{printed}");
    }
}

/// Runs the target of this name.
///
/// # Panics
///
/// If there is none, and if the target panics.
pub fn run(name: &str, bytes: &[u8]) {
    let target = TARGETS.iter().find(|(known, _)| *known == name);
    let (_, target) = target.unwrap_or_else(|| panic!("there is no fuzz target {name}"));
    target(bytes);
}
