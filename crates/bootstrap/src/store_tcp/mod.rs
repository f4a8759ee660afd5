//! A store over TCP: a server in the process of rank 0, clients everywhere.

mod budget;
mod channel;
mod client;
#[cfg(feature = "fuzzing")]
mod fuzzing;
mod patience;
mod protocol;
mod served;
mod server;
mod values;

use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::AtomicBool;
use std::time::Instant;

use patience::Setback;
use weft_call::Error;
use weft_transport_tcp::{Lookup, SocketUser, listener_user, own_user, peer_user};

use super::secret::Secret;
use super::tls::TlsCredentials;

pub use client::TcpStore;
#[cfg(feature = "fuzzing")]
pub(super) use fuzzing::store_tls;
pub use patience::Patience;
pub(super) use protocol::KEYS_MAX;
#[cfg(feature = "fuzzing")]
pub(super) use protocol::{StoreReply, StoreRequest};
pub use server::TcpStoreServer;

/// Who may use a store. Whoever can, can join the job.
#[derive(Clone, Debug)]
pub enum StoreAccess {
    /// Who has the job's secret. Requests and replies are encrypted.
    Secret(Secret),
    /// Who has a certificate of the job's CA. Requests and replies are encrypted.
    Tls(TlsCredentials),
    /// Everybody on this host: only loopback addresses are used.
    ThisHost,
    /// Everybody who reaches it.
    Anybody,
}

impl StoreAccess {
    /// What an end that says nothing to this one may be.
    fn silence(&self) -> &'static str {
        match self {
            StoreAccess::Secret(_) => "does not have this job's secret",
            StoreAccess::Tls(_) => "closes the connection during the TLS handshake",
            StoreAccess::ThisHost | StoreAccess::Anybody => {
                "does not let in who has no secret, or is not a store of this version of weft"
            }
        }
    }

    /// What the ranks of a job need to meet.
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

    /// Refuses the other end of a connection if it is another user's process, where that decides
    /// who belongs to the job.
    fn check_user(&self, stream: &TcpStream) -> Result<(), UserError> {
        match self {
            StoreAccess::ThisHost => UserError::check(peer_user(stream)),
            StoreAccess::Secret(_) | StoreAccess::Tls(_) | StoreAccess::Anybody => Ok(()),
        }
    }

    /// As [`check_user`](Self::check_user), for whom a connection that has ended was called at.
    fn check_listener(&self, address: SocketAddr) -> Result<(), UserError> {
        match self {
            StoreAccess::ThisHost => UserError::check(listener_user(address)),
            StoreAccess::Secret(_) | StoreAccess::Tls(_) | StoreAccess::Anybody => Ok(()),
        }
    }

    /// Whether nobody can use the store who does not belong to the job.
    fn is_authenticated(&self) -> bool {
        matches!(self, StoreAccess::Secret(_) | StoreAccess::Tls(_))
    }

    /// The addresses of a `host:port`, which `lookup` is of, if they may be used.
    fn resolve(
        &self,
        address: &str,
        lookup: &mut Lookup,
        deadline: Instant,
        cancel: &AtomicBool,
    ) -> Result<Vec<SocketAddr>, Setback> {
        let found = lookup.wait(deadline, cancel).map_err(Setback::Passing)?;
        let foreign = |address: &&SocketAddr| !address.ip().to_canonical().is_loopback();
        match found.iter().find(foreign) {
            Some(foreign) if matches!(self, StoreAccess::ThisHost) => {
                Err(Setback::Final(Error::Config(format!(
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

/// Why the other end of a connection within this host may not take part.
enum UserError {
    /// It is another user's process.
    Other(String),
    /// No process has it any more.
    Ended,
    /// This process cannot find out.
    Unknown(std::io::Error),
}

impl UserError {
    fn check(found: std::io::Result<SocketUser>) -> Result<(), UserError> {
        match found {
            Ok(SocketUser::Trusted) => Ok(()),
            Ok(SocketUser::Nobody) => Err(UserError::Ended),
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
