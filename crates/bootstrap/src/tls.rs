//! Certificates, which distinguish the processes of a job from strangers if it has a CA.

use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::client::Resumption;
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::ClientCertVerifier;
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::version::TLS13;
use rustls::{
    CertificateError, ClientConfig, ClientConnection, InconsistentKeys, RootCertStore,
    ServerConfig, ServerConnection,
};

use weft_call::Error;

/// The protocol's name in the handshake (ALPN).
pub(super) const ALPN: &[u8] = b"weft-store/2";
/// A longer file is no file of certificates.
const FILE_BYTES_MAX: u64 = 4 << 20;

/// The PEM files of a rank.
#[derive(Clone, Debug)]
pub struct TlsFiles {
    /// Its certificate, and those between it and the CA's.
    pub cert: PathBuf,
    /// The certificate's private key, which only its owner can read.
    pub key: PathBuf,
    /// The certificates of the CAs that sign those of the job's ranks.
    pub ca: PathBuf,
}

/// The certificate by which a rank proves that it belongs to the job, and its requirements on
/// others.
///
/// Both ends of a connection must have a certificate that a CA of the job has signed.
#[derive(Clone)]
pub struct TlsCredentials {
    files: TlsFiles,
    own: Arc<CertifiedKey>,
    verifier: Arc<dyn ClientCertVerifier>,
    client: Arc<ClientConfig>,
    server: Arc<ServerConfig>,
    server_name: Option<String>,
}

impl TlsCredentials {
    /// Reads the files, and checks that other ranks can accept this rank's certificate.
    ///
    /// # Errors
    ///
    /// [`Error::Config`], which names the file: it cannot be read, other users can read the key, it
    /// is no PEM file, key and certificate do not match, or the certificate is not valid now, is
    /// not for clients, or is not signed by the CA.
    pub fn load(files: &TlsFiles) -> Result<Self, Error> {
        let credentials = Self::read(files)?;
        credentials.check()?;
        Ok(credentials)
    }

    /// Reads the files.
    pub(super) fn read(files: &TlsFiles) -> Result<Self, Error> {
        let provider = Arc::new(ring::default_provider());
        let chain = certificates("tls_cert", &files.cert)?;
        let own = Arc::new(fitting(chain, private_key(&files.key)?, files, &provider)?);
        let roots = Arc::new(roots(&files.ca)?);
        let verifier = WebPkiClientVerifier::builder_with_provider(roots.clone(), provider.clone())
            .build()
            .map_err(|error| bad("tls_ca", &files.ca, &error.to_string()))?;
        Ok(Self {
            client: Arc::new(client_config(&own, roots, provider.clone())?),
            server: Arc::new(server_config(&own, verifier.clone(), provider)?),
            files: files.clone(),
            own,
            verifier,
            server_name: None,
        })
    }

    /// Whether a rank with the same CA accepts this rank's certificate.
    fn check(&self) -> Result<(), Error> {
        let Some((own, between)) = self.own.cert.split_first() else {
            unreachable!("a file without certificates was refused");
        };
        let accepted = (self.verifier).verify_client_cert(own, between, UnixTime::now());
        accepted.map(drop).map_err(|error| {
            let flaw = match error {
                rustls::Error::InvalidCertificate(error) => flaw(&error),
                error => format!("is not accepted: {error}"),
            };
            let ca = self.files.ca.display();
            Error::Config(format!(
                "tls_cert: {} {flaw} (tls_ca is {ca})",
                self.files.cert.display()
            ))
        })
    }

    /// Expects that the certificate of a server is for this name, not for its address.
    pub fn of_server_named(self, name: Option<&str>) -> Self {
        Self {
            server_name: name.map(str::to_owned),
            ..self
        }
    }

    /// The name that the certificate of a server must be for, if it is not its address.
    pub(super) fn server_name(&self) -> Option<&str> {
        self.server_name.as_deref()
    }

    /// The file of this rank's certificate.
    pub(super) fn cert(&self) -> &Path {
        &self.files.cert
    }

    /// The end of a client that calls the server of this name.
    pub(super) fn of_client(
        &self,
        name: ServerName<'static>,
    ) -> Result<ClientConnection, rustls::Error> {
        ClientConnection::new(self.client.clone(), name)
    }

    /// The end of a server.
    pub(super) fn of_server(&self) -> Result<ServerConnection, rustls::Error> {
        ServerConnection::new(self.server.clone())
    }
}

impl fmt::Debug for TlsCredentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("TlsCredentials").field(&self.files).finish()
    }
}

/// A certificate's flaw, as a predicate.
pub(super) fn flaw(error: &CertificateError) -> String {
    use CertificateError::{
        BadSignature, Expired, ExpiredContext, InvalidPurpose, InvalidPurposeContext, NotValidYet,
        NotValidYetContext, Other, UnknownIssuer,
    };
    match error {
        Expired | ExpiredContext { .. } => "has expired, by this host's clock".into(),
        NotValidYet | NotValidYetContext { .. } => "is not valid yet, by this host's clock".into(),
        UnknownIssuer | BadSignature => "is not signed by a CA of tls_ca".into(),
        CertificateError::NotValidForNameContext {
            expected,
            presented,
        } => {
            let names: Vec<&str> = presented.iter().map(|name| bare(name)).collect();
            let names = match &names[..] {
                [] => "no name at all".into(),
                names => names.join(", "),
            };
            format!(
                "is for {names} (subjectAltName), not for {}",
                expected.to_str()
            )
        }
        InvalidPurposeContext { required, .. } => {
            format!("is not for {required} (extendedKeyUsage)")
        }
        InvalidPurpose => "is for another purpose (extendedKeyUsage)".into(),
        Other(other) => format!("is not accepted: {other}"),
        other => format!("is not accepted: {other}"),
    }
}

/// The name in `DnsName("localhost")` or `IpAddress(127.0.0.1)`.
fn bare(name: &str) -> &str {
    let inner = name.split_once('(').map_or(name, |(_, inner)| inner);
    inner.trim_end_matches(')').trim_matches('"')
}

fn client_config(
    own: &Arc<CertifiedKey>,
    roots: Arc<RootCertStore>,
    provider: Arc<CryptoProvider>,
) -> Result<ClientConfig, Error> {
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&TLS13])
        .map_err(internal)?
        .with_root_certificates(roots)
        .with_client_cert_resolver(Arc::new(SingleCertAndKey::from(own.clone())));
    // Every connection is authenticated anew.
    config.resumption = Resumption::disabled();
    config.alpn_protocols = vec![ALPN.into()];
    Ok(config)
}

fn server_config(
    own: &Arc<CertifiedKey>,
    verifier: Arc<dyn ClientCertVerifier>,
    provider: Arc<CryptoProvider>,
) -> Result<ServerConfig, Error> {
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&TLS13])
        .map_err(internal)?
        .with_client_cert_verifier(verifier)
        .with_cert_resolver(Arc::new(SingleCertAndKey::from(own.clone())));
    config.send_tls13_tickets = 0;
    config.alpn_protocols = vec![ALPN.into()];
    Ok(config)
}

fn internal(error: rustls::Error) -> Error {
    Error::Internal(format!("setting up TLS: {error}"))
}

fn bad(option: &str, path: &Path, flaw: &str) -> Error {
    Error::Config(format!("{option}: {}: {flaw}", path.display()))
}

/// Certificate and key, if they match.
fn fitting(
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
    files: &TlsFiles,
    provider: &CryptoProvider,
) -> Result<CertifiedKey, Error> {
    CertifiedKey::from_der(chain, key, provider).map_err(|error| match error {
        rustls::Error::InconsistentKeys(InconsistentKeys::KeyMismatch) => {
            let flaw = format!("is not the key of the certificate {}", files.cert.display());
            bad("tls_key", &files.key, &flaw)
        }
        rustls::Error::InvalidCertificate(error) => {
            bad("tls_cert", &files.cert, &format!("it {}", flaw(&error)))
        }
        // The reason could reveal something about the key.
        _ => bad(
            "tls_key",
            &files.key,
            "the key's type is not supported: RSA, ECDSA (P-256, P-384) and Ed25519 are",
        ),
    })
}

fn certificates(option: &str, path: &Path) -> Result<Vec<CertificateDer<'static>>, Error> {
    let (content, _) = content(option, path)?;
    let found: Result<Vec<_>, pem::Error> = CertificateDer::pem_slice_iter(&content).collect();
    match found {
        Ok(found) if !found.is_empty() => Ok(found),
        _ => Err(bad(
            option,
            path,
            "it holds no certificate in PEM form (-----BEGIN CERTIFICATE-----)",
        )),
    }
}

fn roots(path: &Path) -> Result<RootCertStore, Error> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates("tls_ca", path)? {
        let added = roots.add(certificate);
        added.map_err(|error| bad("tls_ca", path, &format!("a certificate is bad: {error}")))?;
    }
    Ok(roots)
}

fn private_key(path: &Path) -> Result<PrivateKeyDer<'static>, Error> {
    let (content, mode) = content("tls_key", path)?;
    if mode & 0o077 != 0 {
        return Err(Error::Config(format!(
            "tls_key: others can read or write {0}: run `chmod 600 {0}`",
            path.display()
        )));
    }
    PrivateKeyDer::from_pem_slice(&content).map_err(|_| {
        let encrypted = content.windows(9).any(|part| part == b"ENCRYPTED");
        let flaw = match encrypted {
            true => "it is encrypted, and a passphrase cannot be entered",
            false => "it holds no private key in PEM form (-----BEGIN PRIVATE KEY-----)",
        };
        bad("tls_key", path, flaw)
    })
}

/// The contents of a file, and its permissions.
fn content(option: &str, path: &Path) -> Result<(Vec<u8>, u32), Error> {
    let read = || -> io::Result<_> {
        let file = File::open(path)?;
        let mode = file.metadata()?.mode();
        let mut content = Vec::new();
        file.take(FILE_BYTES_MAX).read_to_end(&mut content)?;
        Ok((content, mode))
    };
    read().map_err(|error| {
        Error::Config(format!("{option}: cannot read {}: {error}", path.display()))
    })
}
