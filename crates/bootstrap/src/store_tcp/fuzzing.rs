//! Parsers of data at an end of a store connection of a job with certificates, before the other end
//! has presented one.

use std::path::Path;
use std::sync::LazyLock;
use std::{fs, io};

use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};

use super::StoreAccess;
use super::channel::StoreChannel;
use super::protocol::{BODY_BYTES_MAX, StoreRequest, message};
use crate::tls::{TlsCredentials, TlsFiles};

const ADDRESS: &str = "127.0.0.1:1";
/// The most bytes that an end keeps before the other is authenticated.
const HELD_BYTES_MAX: usize = 64 << 10;
/// An upper bound of a handshake's flights.
const FLIGHTS_MAX: usize = 8;

/// The credentials of both ends of a job.
static ACCESS: LazyLock<StoreAccess> = LazyLock::new(|| {
    let folder = std::env::temp_dir().join(format!("weft-fuzz-{}", std::process::id()));
    let credentials = credentials(&folder).expect("files in a folder of its own");
    fs::remove_dir_all(&folder).expect("the folder was just made");
    StoreAccess::Tls(credentials)
});

/// Bytes that strangers send to the server, or to a client, in place of TLS; or a member's bytes,
/// changed on the way. The first byte chooses.
///
/// # Panics
/// If an end takes a stranger for a member, keeps too much, or receives bytes that were not sent.
pub(crate) fn store_tls(bytes: &[u8]) {
    match bytes.split_first() {
        Some((0, received)) => {
            let server = StoreChannel::of_server(&ACCESS).expect("the end of a server");
            from_a_stranger(server, received);
        }
        Some((1, received)) => from_a_stranger(client().0, received),
        Some((2, changes)) => changed_on_the_way(changes),
        _ => {}
    }
}

fn client() -> (StoreChannel, Vec<u8>) {
    let mut wire = Vec::new();
    let client = StoreChannel::of_client(&ACCESS, ADDRESS, &mut wire).expect("the end of a client");
    (client, wire)
}

/// The bytes arrive in pieces of the length in the first byte.
fn from_a_stranger(mut end: StoreChannel, received: &[u8]) {
    let (length, received) = received.split_first().unwrap_or((&0, &[]));
    for piece in received.chunks(usize::from(*length) + 1) {
        let failed = end.feed(piece, &mut Vec::new()).is_err();
        assert!(!end.is_proven(), "a stranger is taken for a member");
        assert!(end.held() <= HELD_BYTES_MAX, "{} bytes", end.held());
        if failed {
            return;
        }
    }
}

/// Each three bytes change one byte from the client: its position (little-endian), and the change.
fn changed_on_the_way(changes: &[u8]) {
    let changes = changes.chunks_exact(3).map(|change| {
        let at = u16::from_le_bytes([change[0], change[1]]);
        (usize::from(at), change[2])
    });
    let changes: Vec<(usize, u8)> = changes.filter(|(_, change)| *change != 0).collect();
    let mut server = StoreChannel::of_server(&ACCESS).expect("the end of a server");
    let (mut client, mut to_server) = client();
    let request = message(&StoreRequest::Has { key: "key".into() });
    let (mut sent, mut has_spoken) = (0, false);
    for _ in 0..FLIGHTS_MAX {
        for (at, change) in &changes {
            if let Some(byte) = at.checked_sub(sent).and_then(|at| to_server.get_mut(at)) {
                *byte ^= change;
            }
        }
        sent += to_server.len();
        let mut to_client = Vec::new();
        if server.feed(&to_server, &mut to_client).is_err() {
            return;
        }
        to_server.clear();
        if client.feed(&to_client, &mut to_server).is_err() {
            return;
        }
        if client.is_open() && !has_spoken {
            client.seal(&request, &mut to_server);
            has_spoken = true;
        }
    }
    let received = server.next_body(BODY_BYTES_MAX).expect("a message");
    match received {
        Some(received) => assert_eq!(received, request[4..], "other bytes than were sent"),
        None => assert!(!changes.is_empty(), "nothing was received"),
    }
}

fn credentials(folder: &Path) -> io::Result<TlsCredentials> {
    fs::create_dir(folder)?;
    let files = TlsFiles {
        cert: folder.join("cert.pem"),
        key: folder.join("key.pem"),
        ca: folder.join("ca.pem"),
    };
    let mut ca = CertificateParams::default();
    ca.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let ca_key = KeyPair::generate().map_err(io::Error::other)?;
    let ca_cert = ca.self_signed(&ca_key).map_err(io::Error::other)?;
    let key = KeyPair::generate().map_err(io::Error::other)?;
    let own = CertificateParams::new(["127.0.0.1".into()]).map_err(io::Error::other)?;
    let cert = own.signed_by(&key, &Issuer::new(ca, ca_key));
    let cert = cert.map_err(io::Error::other)?;
    fs::write(&files.ca, ca_cert.pem())?;
    fs::write(&files.cert, cert.pem())?;
    write_private(&files.key, &key.serialize_pem())?;
    TlsCredentials::load(&files).map_err(io::Error::other)
}

fn write_private(path: &Path, content: &str) -> io::Result<()> {
    use std::io::Write;
    use std::os::unix::fs::OpenOptionsExt;
    let mut options = fs::OpenOptions::new();
    let mut file = options
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path)?;
    file.write_all(content.as_bytes())
}
