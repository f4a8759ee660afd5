//! Users of connections within this host, from the kernel's tables of sockets.
//!
//! Loopback addresses reach the sockets of one network namespace only, and the tables are those of
//! the calling thread's: so both ends of such a connection are in them, in any container or process
//! namespace. A user without a number in this process's user namespace is shown with the overflow
//! number, which belongs to no user.

use std::fs::{self, File};
use std::io::{self, BufRead, BufReader};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream};

use weft_transport::fork::AboveStandardStreams;

/// A table that changes while it is read may lack a row: it is read this often before a missing row
/// counts.
const READINGS: u32 = 3;
const LISTENS: &str = "0A";

/// The user of a process at one end of connections.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SocketUser {
    /// This process's user, or root, who has all permissions of this process.
    Trusted,
    /// Another user, by its number.
    Other(u32),
    /// No process owns the socket: it is closed, or not accepted yet.
    Unowned,
}

/// The user at the other end of a connection over a loopback address.
///
/// # Errors
/// If the kernel's tables cannot be read, or this process's user has no number.
pub fn peer_user(stream: &TcpStream) -> io::Result<SocketUser> {
    let (peer, own) = (stream.peer_addr()?, stream.local_addr()?);
    let forms = (forms(peer).into_iter()).zip(forms(own));
    let rows = forms.map(|((table, peer), (_, own))| (table, format!(" {peer} {own} ")));
    user_of(&rows.collect::<Vec<_>>())
}

/// The user of the listener at this address, which must be one of this host.
///
/// # Errors
/// As for [`peer_user`].
pub fn listener_user(address: SocketAddr) -> io::Result<SocketUser> {
    let port = address.port();
    let anywhere = |any: IpAddr| SocketAddr::new(any, port);
    let at = [
        address,
        anywhere(Ipv4Addr::UNSPECIFIED.into()),
        anywhere(Ipv6Addr::UNSPECIFIED.into()),
    ];
    let rows = at.into_iter().flat_map(|at| {
        let unspecified = match at {
            SocketAddr::V4(_) => SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), 0),
            SocketAddr::V6(_) => SocketAddr::new(Ipv6Addr::UNSPECIFIED.into(), 0),
        };
        let pairs = forms(at).into_iter().zip(forms(unspecified));
        pairs.map(|((table, at), (_, unspecified))| {
            (table, format!(" {at} {unspecified} {LISTENS} "))
        })
    });
    user_of(&rows.collect::<Vec<_>>())
}

/// The number of this process's user.
///
/// # Errors
///
/// It has none in the user namespace, so that it cannot be distinguished from others.
pub fn own_user() -> io::Result<u32> {
    // SAFETY: plain query.
    let own = unsafe { libc::geteuid() };
    let _above = AboveStandardStreams::new()?;
    let map = fs::read_to_string("/proc/thread-self/uid_map")?;
    let contains = |line: &str| {
        let mut numbers = line.split_ascii_whitespace().map(str::parse::<u64>);
        match (numbers.next(), numbers.nth(1)) {
            (Some(Ok(first)), Some(Ok(count))) => (first..first + count).contains(&own.into()),
            _ => false,
        }
    };
    match map.lines().any(contains) {
        true => Ok(own),
        false => Err(io::Error::other(
            "this process's user has no number in its user namespace",
        )),
    }
}

/// The user of the first socket whose row in a table begins with one of these.
fn user_of(rows: &[(&str, String)]) -> io::Result<SocketUser> {
    let own = own_user()?;
    for _ in 0..READINGS {
        for (table, row) in rows {
            match find(table, row)? {
                Some(user) if user == own || user == 0 => return Ok(SocketUser::Trusted),
                Some(user) => return Ok(SocketUser::Other(user)),
                None => {}
            }
        }
    }
    Ok(SocketUser::Unowned)
}

/// The user of the socket with this row in this table. A socket that no process owns belongs to no
/// user, although it is shown as root's.
fn find(table: &str, row: &str) -> io::Result<Option<u32>> {
    let path = format!("/proc/thread-self/net/{table}");
    let named = |error: io::Error| io::Error::new(error.kind(), format!("{path}: {error}"));
    // Other threads may open what they keep.
    let _above = AboveStandardStreams::new()?;
    let file = match File::open(&path) {
        Ok(file) => file,
        // A kernel without IPv6.
        Err(error) if error.kind() == io::ErrorKind::NotFound && table == "tcp6" => {
            return Ok(None);
        }
        Err(error) if error.raw_os_error() == Some(libc::EMFILE) => return Err(error),
        Err(error) => return Err(named(error)),
    };
    for line in BufReader::new(file).lines() {
        let line = line.map_err(named)?;
        if !line.contains(row) {
            continue;
        }
        let mut columns = line.split_ascii_whitespace().skip(7);
        if let (Some(Ok(user)), Some(inode)) = (columns.next().map(str::parse), columns.nth(1))
            && inode != "0"
        {
            return Ok(Some(user));
        }
    }
    Ok(None)
}

/// An address in the tables' notation, with the table. Sockets for both families have IPv4
/// addresses in the table for IPv6.
fn forms(address: SocketAddr) -> Vec<(&'static str, String)> {
    let port = address.port();
    let v4 = |ip: Ipv4Addr| ("tcp", format!("{}:{port:04X}", words(&ip.octets())));
    let v6 = |ip: Ipv6Addr| ("tcp6", format!("{}:{port:04X}", words(&ip.octets())));
    match address.ip().to_canonical() {
        IpAddr::V4(ip) => vec![v4(ip), v6(ip.to_ipv6_mapped())],
        IpAddr::V6(ip) => vec![v6(ip)],
    }
}

/// Words of four bytes, in this machine's byte order.
fn words(octets: &[u8]) -> String {
    let (words, _) = octets.as_chunks();
    let words = words.iter().map(|word| u32::from_ne_bytes(*word));
    words.map(|word| format!("{word:08X}")).collect()
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn ends_have_users_while_processes_own_them() {
        for address in ["127.0.0.1:0", "[::1]:0", "[::]:0"] {
            let Ok(listener) = TcpListener::bind(address) else {
                continue; // A host without IPv6.
            };
            let port = listener.local_addr().unwrap().port();
            let at = match address {
                "[::1]:0" => SocketAddr::new(Ipv6Addr::LOCALHOST.into(), port),
                _ => SocketAddr::new(Ipv4Addr::LOCALHOST.into(), port),
            };
            assert_eq!(listener_user(at).unwrap(), SocketUser::Trusted, "{address}");
            let caller = TcpStream::connect(at).unwrap();
            assert_eq!(
                peer_user(&caller).unwrap(),
                SocketUser::Unowned,
                "{address}"
            );
            let (called, _) = listener.accept().unwrap();
            assert_eq!(
                peer_user(&caller).unwrap(),
                SocketUser::Trusted,
                "{address}"
            );
            assert_eq!(
                peer_user(&called).unwrap(),
                SocketUser::Trusted,
                "{address}"
            );
            // The kernel keeps the row for a while, as root's.
            drop(caller);
            assert_eq!(
                peer_user(&called).unwrap(),
                SocketUser::Unowned,
                "{address}"
            );
        }
    }
}
