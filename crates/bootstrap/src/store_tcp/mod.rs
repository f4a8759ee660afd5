//! A store over TCP: a server in the process of rank 0, clients on all ranks.

mod budget;
mod channel;
mod client;
#[cfg(feature = "fuzzing")]
mod fuzzing;
mod protocol;
mod retry;
mod served;
mod server;
mod status;
mod values;

use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::AtomicBool;
use std::time::Instant;

use retry::AttemptFailure;
use weft_call::Error;
use weft_transport_tcp::{Lookup, SocketUser, listener_user, own_user, peer_user};

use super::secret::Secret;
use super::tls::TlsCredentials;

pub use client::TcpStore;
#[cfg(feature = "fuzzing")]
pub(super) use fuzzing::store_tls;
pub(super) use protocol::KEYS_MAX;
#[cfg(feature = "fuzzing")]
pub(super) use protocol::{StoreReply, StoreRequest};
pub use retry::Retry;
pub use server::TcpStoreServer;

/// The processes that may use a store. A process that can use it can join the job.
#[derive(Clone, Debug)]
pub enum StoreAccess {
    /// Processes with the job's secret. Requests and replies are encrypted.
    Secret(Secret),
    /// Processes with a certificate of the job's CA. Requests and replies are encrypted.
    Tls(TlsCredentials),
    /// All processes on this host: only loopback addresses are used.
    ThisHost,
    /// All processes that can reach it.
    Anybody,
}

impl StoreAccess {
    /// The likely reason that the other end sends nothing.
    fn silence(&self) -> &'static str {
        match self {
            StoreAccess::Secret(_) => "does not have this job's secret",
            StoreAccess::Tls(_) => "closes the connection during the TLS handshake",
            StoreAccess::ThisHost | StoreAccess::Anybody => {
                "requires a secret, or is not a store of this version of weft"
            }
        }
    }

    /// The condition for the ranks of a job to meet.
    fn requirement(&self) -> &'static str {
        match self {
            StoreAccess::Secret(_) | StoreAccess::ThisHost | StoreAccess::Anybody => {
                "WEFT_SECRET must be the same on all ranks"
            }
            StoreAccess::Tls(_) => {
                "all ranks need certificates of one CA (WEFT_TLS_CERT, WEFT_TLS_KEY, WEFT_TLS_CA), \
                 rank 0 one for the name or address in MASTER_ADDR"
            }
        }
    }

    /// Rejects the other end of a connection if it is another user's process, where the user
    /// decides whether a process belongs to the job.
    fn check_user(&self, stream: &TcpStream) -> Result<(), UserError> {
        match self {
            StoreAccess::ThisHost => UserError::check(peer_user(stream)),
            StoreAccess::Secret(_) | StoreAccess::Tls(_) | StoreAccess::Anybody => Ok(()),
        }
    }

    /// Like [`check_user`](Self::check_user), for the listener of a connection that has ended.
    fn check_listener(&self, address: SocketAddr) -> Result<(), UserError> {
        match self {
            StoreAccess::ThisHost => UserError::check(listener_user(address)),
            StoreAccess::Secret(_) | StoreAccess::Tls(_) | StoreAccess::Anybody => Ok(()),
        }
    }

    /// Whether only processes of the job can use the store.
    fn is_authenticated(&self) -> bool {
        matches!(self, StoreAccess::Secret(_) | StoreAccess::Tls(_))
    }

    /// The addresses of a `host:port`, by its `lookup`, if they may be used.
    fn resolve(
        &self,
        address: &str,
        lookup: &mut Lookup,
        deadline: Instant,
        cancel: &AtomicBool,
    ) -> Result<Vec<SocketAddr>, AttemptFailure> {
        let found = lookup
            .wait(deadline, cancel)
            .map_err(AttemptFailure::Passing)?;
        let foreign = |address: &&SocketAddr| !address.ip().to_canonical().is_loopback();
        match found.iter().find(foreign) {
            Some(foreign) if matches!(self, StoreAccess::ThisHost) => {
                Err(AttemptFailure::Final(Error::Config(format!(
                    "the ranks would meet at {address}, where others than this host may reach the store \
                     ({} is no loopback address), and this job has no secret: set WEFT_SECRET to the \
                     same random text on all ranks (or WEFT_SECRET_FILE, or WEFT_TLS_CERT, \
                     WEFT_TLS_KEY and WEFT_TLS_CA), or, where only trusted processes reach this network, WEFT_INSECURE=1",
                    foreign.ip()
                ))))
            }
            _ => Ok(found),
        }
    }
}

fn lookup_of(address: &str) -> Result<Lookup, Error> {
    let invalid = |error| Error::Config(format!("the ranks cannot meet at {address:?}: {error}"));
    Lookup::new(address).map_err(invalid)
}

/// The reason that the other end of a connection within this host may not take part.
enum UserError {
    /// It is another user's process.
    Other(String),
    /// No process owns it any more.
    Ended,
    /// This process cannot determine it.
    Unknown(std::io::Error),
}

impl UserError {
    fn check(found: std::io::Result<SocketUser>) -> Result<(), UserError> {
        match found {
            Ok(SocketUser::Trusted) => Ok(()),
            Ok(SocketUser::Unowned) => Err(UserError::Ended),
            Ok(SocketUser::Other(user)) => Err(UserError::Other(format!(
                "is another user's process (user number {user}{}), and this job has no secret",
                own_user().map_or(String::new(), |own| format!(", this one's is {own}"))
            ))),
            Err(error) => Err(UserError::Unknown(error)),
        }
    }
}

#[cfg(test)]
mod tests;
