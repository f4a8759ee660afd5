//! Links over TCP.
//!
//! An endpoint listens on one port, on the network that the rendezvous selects. A connection begins
//! with a handshake that proves that the caller got the address from the rendezvous; then it
//! carries frames, in encrypted records if links are encrypted. The receiver trusts nothing: it
//! writes only to ranges of regions that this peer was granted.
#![warn(clippy::missing_errors_doc)]

mod address;
mod broken;
mod carrier;
mod class;
mod closing;
mod congestion;
mod connection;
mod descriptor;
mod dialer;
mod encryption;
mod frame;
#[cfg(feature = "fuzzing")]
pub mod fuzzing;
mod handshake;
mod incoming;
mod interface;
mod kept;
mod last_calls;
mod link;
mod listener;
mod lock;
mod lookup;
mod losses;
mod named_address;
mod outgoing;
mod patience;
mod places;
mod put;
mod rails;
mod record_key;
mod records;
#[cfg(test)]
mod redirect_tests;
mod renewal;
#[cfg(test)]
mod renewal_tests;
mod resumption;
mod shift;
mod slices;
mod socket;
mod stream;
#[cfg(test)]
mod traffic_tests;
mod transport;
mod user;
mod ways;

pub use congestion::{CongestionChoice, CongestionControl};
pub use encryption::{Cipher, Encryption};
pub use interface::Interface;
pub use lookup::Lookup;
pub use named_address::NamedAddress;
pub use resumption::Resumption;
pub use socket::{connect, connect_from, has_waiting_caller, listen, poll, poll_entry};
pub use transport::{TcpOptions, TcpTransport};
pub use user::{SocketUser, listener_user, own_user, peer_user};
