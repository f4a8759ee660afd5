//! Jobs whose ranks have certificates of a CA.

use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

use rcgen::{
    BasicConstraints, CertificateParams, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    date_time_ymd,
};
use rustls::crypto::ring;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{AlertDescription, ClientConfig, ClientConnection, RootCertStore, StreamOwned};

use super::*;
use crate::tls::TlsFiles;

/// A CA, and the certificates that it has signed: files of a folder that is removed with it.
struct Authority {
    folder: PathBuf,
    issuer: Issuer<'static, KeyPair>,
    signed: AtomicUsize,
}

impl Authority {
    fn new() -> Self {
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let folder = format!("weft-tls-{}-{number}", std::process::id());
        let folder = std::env::temp_dir().join(folder);
        fs::create_dir(&folder).unwrap();
        let mut params = CertificateParams::new([]).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        let certificate = params.self_signed(&key).unwrap();
        fs::write(folder.join("ca.pem"), certificate.pem()).unwrap();
        Self {
            folder,
            issuer: Issuer::new(params, key),
            signed: AtomicUsize::new(0),
        }
    }

    fn ca(&self) -> PathBuf {
        self.folder.join("ca.pem")
    }

    /// The files of a rank whose certificate is for these names.
    fn files(&self, names: &[&str]) -> TlsFiles {
        self.files_with(names, |_| {})
    }

    fn files_with(&self, names: &[&str], change: fn(&mut CertificateParams)) -> TlsFiles {
        let key = KeyPair::generate().unwrap();
        let certificate = params(names, change).signed_by(&key, &self.issuer).unwrap();
        self.write(&certificate.pem(), &key)
    }

    /// The files of a rank with a self-signed certificate.
    fn self_signed_files(&self) -> TlsFiles {
        let key = KeyPair::generate().unwrap();
        let certificate = params(&["127.0.0.1"], |_| {}).self_signed(&key).unwrap();
        self.write(&certificate.pem(), &key)
    }

    fn write(&self, certificate: &str, key: &KeyPair) -> TlsFiles {
        let number = self.signed.fetch_add(1, Ordering::Relaxed);
        let files = TlsFiles {
            cert: self.folder.join(format!("{number}.pem")),
            key: self.folder.join(format!("{number}.key")),
            ca: self.ca(),
        };
        fs::write(&files.cert, certificate).unwrap();
        fs::write(&files.key, key.serialize_pem()).unwrap();
        permit(&files.key, 0o600);
        files
    }
}

impl Drop for Authority {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.folder);
    }
}

fn params(names: &[&str], change: fn(&mut CertificateParams)) -> CertificateParams {
    let names: Vec<String> = names.iter().map(|name| name.to_string()).collect();
    let mut params = CertificateParams::new(names).unwrap();
    change(&mut params);
    params
}

fn expired(params: &mut CertificateParams) {
    params.not_before = date_time_ymd(2001, 1, 1);
    params.not_after = date_time_ymd(2002, 1, 1);
}

fn only_for_servers(params: &mut CertificateParams) {
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
}

fn only_for_clients(params: &mut CertificateParams) {
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
}

fn permit(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

/// The access of a rank with these files, which has not checked whether others accept them.
fn access(files: &TlsFiles) -> StoreAccess {
    StoreAccess::Tls(TlsCredentials::read(files).unwrap())
}

fn tls_server(authority: &Authority, limits: StoreLimits) -> TcpStoreServer {
    let credentials = TlsCredentials::load(&authority.files(&["127.0.0.1"])).unwrap();
    TcpStoreServer::start_with("127.0.0.1:0", &StoreAccess::Tls(credentials), limits).unwrap()
}

fn refused(server: &TcpStoreServer, access: StoreAccess) -> String {
    let error = connect(server, access).map(drop).unwrap_err();
    assert!(matches!(error, Error::Auth(_)), "{error}");
    error.to_string()
}

#[test]
fn ranks_with_the_cas_certificates_are_served() {
    let authority = Authority::new();
    let server = tls_server(&authority, StoreLimits::default());
    let [one, two] = [&["node1"][..], &[]].map(|names| {
        let credentials = TlsCredentials::load(&authority.files(names)).unwrap();
        connect(&server, StoreAccess::Tls(credentials)).unwrap()
    });
    std::thread::scope(|scope| {
        let keys = ["a".to_string(), "empty".to_string()];
        let waiter =
            scope.spawn(move || two.multi_get(&keys, soon(10_000), &AtomicBool::new(false)));
        one.set("empty", b"").unwrap();
        one.set("a", &vec![7; 3 << 20]).unwrap();
        let values = waiter.join().unwrap().unwrap();
        assert_eq!(values, [vec![7; 3 << 20], Vec::new()]);
    });
    assert!(one.has("a").unwrap());
}

#[test]
fn ranks_with_bad_certificates_get_the_reason() {
    let [ours, other] = [(); 2].map(|()| Authority::new());
    let server = tls_server(&ours, StoreLimits::default());
    let unsigned = "is not signed by a CA of its tls_ca";
    for (mut files, why) in [
        (ours.self_signed_files(), unsigned),
        (other.files(&["127.0.0.1"]), unsigned),
        (
            ours.files_with(&["127.0.0.1"], expired),
            "is not valid now, by its clock",
        ),
        (
            ours.files_with(&["127.0.0.1"], only_for_servers),
            "is not for clients",
        ),
    ] {
        files.ca = ours.ca();
        let message = refused(&server, access(&files));
        let cert = files.cert.display();
        assert!(
            message.contains(&format!(
                "refuses this rank's certificate {cert}, which {why}"
            )),
            "{message}"
        );
        assert!(message.contains("certificates of one CA"), "{message}");
        // A rank with such a file gets the error before it connects.
        let error = TlsCredentials::load(&files).map(drop).unwrap_err();
        assert!(matches!(error, Error::Config(_)), "{error}");
        assert!(
            error
                .to_string()
                .contains(&format!("tls_cert: {cert} is not"))
                || error.to_string().contains("has expired"),
            "{error}"
        );
    }
    let member = connect(&server, access(&ours.files(&[]))).unwrap();
    assert!(!member.has("a").unwrap());
}

#[test]
fn servers_with_bad_certificates_are_refused() {
    let [ours, other] = [(); 2].map(|()| Authority::new());
    let with_our_ca = |mut files: TlsFiles| {
        files.ca = ours.ca();
        files
    };
    let unsigned = "has a certificate that is not signed by a CA of tls_ca";
    for (files, why) in [
        (with_our_ca(ours.self_signed_files()), unsigned),
        (with_our_ca(other.files(&["127.0.0.1"])), unsigned),
        (ours.files_with(&["127.0.0.1"], expired), "has expired"),
        (
            ours.files_with(&["127.0.0.1"], only_for_clients),
            "is not for server authentication",
        ),
        (
            ours.files(&["node7.example", "10.0.0.1"]),
            "is for node7.example, 10.0.0.1 (subjectAltName), not for 127.0.0.1",
        ),
        (ours.files(&[]), "is for no name at all"),
    ] {
        let server = TcpStoreServer::start("127.0.0.1:0", &access(&files)).unwrap();
        let message = refused(&server, access(&ours.files(&[])));
        assert!(message.contains(why), "{message}");
        assert!(message.contains(&server.address().to_string()), "{message}");
    }
}

#[test]
fn certificates_may_be_for_a_host_name() {
    let authority = Authority::new();
    let files = authority.files(&["localhost"]);
    let server = TcpStoreServer::start("127.0.0.1:0", &access(&files)).unwrap();
    let address = format!("localhost:{}", server.address().port());
    let never = AtomicBool::new(false);
    let store = TcpStore::connect(&address, access(&files), soon(20_000), &never);
    store.unwrap().set("a", b"1").unwrap();
    let message = refused(&server, access(&files));
    assert!(
        message.contains("is for localhost (subjectAltName)"),
        "{message}"
    );
}

#[test]
fn clients_without_certificate_get_no_reply() {
    let authority = Authority::new();
    let server = tls_server(&authority, StoreLimits::default());
    let mut roots = RootCertStore::empty();
    let ca = CertificateDer::from_pem_file(authority.ca()).unwrap();
    roots.add(ca).unwrap();
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let name = "127.0.0.1".try_into().unwrap();
    let connection = ClientConnection::new(Arc::new(config), name).unwrap();
    let socket = TcpStream::connect(server.address()).unwrap();
    socket
        .set_read_timeout(Some(Duration::from_secs(20)))
        .unwrap();
    let mut stranger = StreamOwned::new(connection, socket);
    let said = protocol::message(&StoreRequest::Has { key: "a".into() });
    let mut received = Vec::new();
    let _ = stranger.write_all(&said);
    let error = stranger.read_to_end(&mut received).unwrap_err();
    assert!(received.is_empty(), "{received:?}");
    assert_eq!(error.kind(), ErrorKind::InvalidData, "{error}");
    let alert = format!("{:?}", AlertDescription::CertificateRequired);
    assert!(error.to_string().contains(&alert), "{error}");
}

#[test]
fn ranks_with_different_authentication_do_not_meet() {
    let authority = Authority::new();
    let tls = tls_server(&authority, StoreLimits::default());
    for other in [secret(OURS), StoreAccess::ThisHost] {
        let message = refused(&tls, other.clone());
        assert!(
            message.contains("WEFT_SECRET must be the same"),
            "{message}"
        );
        let server = TcpStoreServer::start("127.0.0.1:0", &other).unwrap();
        let message = refused(&server, access(&authority.files(&[])));
        assert!(message.contains("during the TLS handshake"), "{message}");
    }
    for says in [&b"GET / HTTP/1.1\r\n\r\n"[..], &[0xa5; 100_000]] {
        assert!(reply_to_stranger(&tls, says).is_empty());
    }
}

#[test]
fn stalled_handshakes_are_dropped_without_delay() {
    let limits = StoreLimits {
        strangers: 8,
        stranger_time: Duration::from_millis(500),
        ..StoreLimits::default()
    };
    let authority = Authority::new();
    let server = tls_server(&authority, limits);
    let files = authority.files(&[]);
    let mut hello = Vec::new();
    channel::StoreChannel::of_client(&access(&files), "127.0.0.1:1", &mut hello).unwrap();
    // After a part of the hello, after all of it, and with steady traffic.
    let stalled: Vec<_> = (0..20)
        .map(|number| {
            let mut stranger = TcpStream::connect(server.address()).unwrap();
            let part = &hello[..[3, 60, hello.len()][number % 3]];
            stranger.write_all(part).unwrap();
            stranger
        })
        .collect();
    let member = connect(&server, access(&files)).unwrap();
    member.set("a", b"1").unwrap();
    let started = Instant::now();
    for mut stranger in stalled {
        stranger
            .set_read_timeout(Some(Duration::from_secs(20)))
            .unwrap();
        match stranger.read_to_end(&mut Vec::new()) {
            Err(error) if error.kind() == ErrorKind::WouldBlock => panic!("still open"),
            _ => {}
        }
    }
    assert!(started.elapsed() < Duration::from_secs(10));
    assert!(member.has("a").unwrap());
}

#[test]
fn endless_handshake_is_cut_off() {
    let limits = StoreLimits {
        stranger_time: Duration::from_secs(600),
        ..StoreLimits::default()
    };
    let server = tls_server(&Authority::new(), limits);
    // A message of 65,000 bytes, each in a record of its own, without the last.
    let message = [&[1, 0, 0xfd, 0xe8][..], &[0; 30_000]].concat();
    let records = |byte: &u8| [22, 3, 1, 0, 1, *byte];
    let says: Vec<u8> = message.iter().flat_map(records).collect();
    assert!(reply_to_stranger(&server, &says).is_empty());
}

#[test]
fn bad_files_are_named() {
    let [ours, other] = [(); 2].map(|()| Authority::new());
    let check = |files: &TlsFiles, expected: &str, at: &Path| {
        let error = TlsCredentials::load(files).map(drop).unwrap_err();
        assert!(matches!(error, Error::Config(_)), "{error}");
        let message = error.to_string();
        assert!(
            message.contains(expected) && message.contains(at.to_str().unwrap()),
            "{message}"
        );
    };
    let good = ours.files(&[]);
    TlsCredentials::load(&good).unwrap();
    let with = |change: &dyn Fn(&mut TlsFiles)| {
        let mut files = good.clone();
        change(&mut files);
        files
    };
    let missing = ours.folder.join("missing.pem");
    for (option, files) in [
        ("tls_cert", with(&|files| files.cert = missing.clone())),
        ("tls_key", with(&|files| files.key = missing.clone())),
        ("tls_ca", with(&|files| files.ca = missing.clone())),
    ] {
        check(&files, &format!("{option}: cannot read"), &missing);
    }
    let text = ours.folder.join("text.pem");
    fs::write(&text, "-----BEGIN CERTIFICATE-----\nnothing\n").unwrap();
    permit(&text, 0o600);
    for (what, files) in [
        ("no certificate", with(&|files| files.cert = text.clone())),
        ("no private key", with(&|files| files.key = text.clone())),
        ("no certificate", with(&|files| files.ca = text.clone())),
    ] {
        check(&files, what, &text);
    }
    let encrypted =
        "-----BEGIN ENCRYPTED PRIVATE KEY-----\nAAAA\n-----END ENCRYPTED PRIVATE KEY-----\n";
    fs::write(&text, encrypted).unwrap();
    check(
        &with(&|files| files.key = text.clone()),
        "it is encrypted",
        &text,
    );
    let stray = ours.files(&[]).key;
    check(
        &with(&|files| files.key = stray.clone()),
        "is not the key of the certificate",
        &stray,
    );
    check(
        &with(&|files| files.ca = other.ca()),
        "is not signed by a CA of tls_ca",
        &good.cert,
    );
    check(&ours.files_with(&[], expired), "has expired", &ours.folder);
    for mode in [0o640, 0o604, 0o620] {
        permit(&good.key, mode);
        check(&good, "others can read or write", &good.key);
    }
}

#[test]
fn the_private_key_is_not_shown() {
    let authority = Authority::new();
    let files = authority.files(&[]);
    let key = fs::read_to_string(&files.key).unwrap();
    let shown = format!("{:?}", access(&files));
    assert!(shown.contains("tls-") && !key.lines().any(|line| shown.contains(line)));
}

#[test]
fn certificates_permit_network_addresses() {
    let authority = Authority::new();
    let files = authority.files(&["192.0.2.1"]);
    let server = TcpStoreServer::start("192.0.2.1:0", &access(&files)).unwrap();
    assert!(server.listens_everywhere());
}

#[test]
fn strangers_take_bounded_processor_time() {
    const STRANGERS: usize = 200;
    let authority = Authority::new();
    let limits = StoreLimits {
        stranger_processor: (Duration::from_millis(1), 100),
        ..StoreLimits::default()
    };
    let server = tls_server(&authority, limits);
    let member = access(&authority.files(&[]));
    let hello = opening(&member);
    let elsewhere = std::net::Ipv4Addr::new(127, 0, 0, 2).into();
    let strangers: Vec<_> = (0..STRANGERS)
        .map(|_| {
            let never = AtomicBool::new(false);
            let (from, to) = (Some(elsewhere), server.address());
            let stream = weft_transport_tcp::connect_from(from, to, soon(5000), &never).unwrap();
            (&*stream).write_all(&hello).unwrap();
            stream
        })
        .collect();
    // A rank's handshake waits behind at most one stranger's, and is refunded.
    connect(&server, member).unwrap().set("a", b"1").unwrap();
    let answered = |stream: &&_| {
        let mut stream: &TcpStream = stream;
        !matches!(stream.read(&mut [0]), Err(error) if error.kind() == ErrorKind::WouldBlock)
    };
    let count = strangers
        .iter()
        .map(|stream| &**stream)
        .filter(answered)
        .count();
    assert!(count < STRANGERS / 2, "{count} were answered");
}
