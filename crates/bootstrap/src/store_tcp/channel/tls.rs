//! The record layer of jobs with a CA: TLS 1.3, in which both ends present certificates.
//!
//! A client that has presented its certificate does not know yet whether the server accepts it. The
//! server therefore sends a constant first, and the client sends nothing before.

use std::io::{self, Read, Write};
use std::net::IpAddr;

use rustls::pki_types::ServerName;
use rustls::{AlertDescription, Connection};
use weft_call::Error;

use super::record_layer::{PROTOCOL, RecordLayer};
use crate::store_tcp::protocol::{Malformed, StoreFailure};
use crate::tls::{ALPN, TlsCredentials, flaw};

/// The most bytes that an end may send before it is authenticated: certificate chains need a tenth.
const HANDSHAKE_BYTES_MAX: usize = 64 << 10;
/// The type of a record (1 byte), the version (2) and the length (2, big-endian).
const HEADER_BYTES: usize = 5;
/// The longest record: 16 KiB, and the overhead of encryption.
const RECORD_BYTES_MAX: usize = (16 << 10) + 256;
/// The types of records: changes of cipher, alerts, handshake, application data.
const RECORD_TYPES: std::ops::RangeInclusive<u8> = 20..=23;

pub(super) struct TlsRecords {
    connection: Connection,
    credentials: TlsCredentials,
    /// Whether the server has sent its greeting.
    open: bool,
    /// Received bytes that are less than a record.
    partial: Vec<u8>,
    /// Bytes received before the server's greeting.
    handshake_bytes: usize,
}

impl TlsRecords {
    /// The end of a client that calls the server at this `host:port`, and its first bytes.
    pub(super) fn of_client(
        credentials: &TlsCredentials,
        address: &str,
        wire: &mut Vec<u8>,
    ) -> Result<Self, Error> {
        let name = server_name(credentials.server_name().unwrap_or(address))?;
        let connection = credentials.of_client(name);
        let mut records = Self::new(connection.map_err(unusable)?.into(), credentials);
        records.write(wire);
        Ok(records)
    }

    pub(super) fn of_server(credentials: &TlsCredentials) -> io::Result<Self> {
        let connection = credentials.of_server().map_err(io::Error::other)?;
        Ok(Self::new(connection.into(), credentials))
    }

    fn new(connection: Connection, credentials: &TlsCredentials) -> Self {
        Self {
            connection,
            credentials: credentials.clone(),
            open: false,
            partial: Vec::new(),
            handshake_bytes: 0,
        }
    }

    /// Processes a record.
    fn take(&mut self, mut record: &[u8], plain: &mut Vec<u8>) -> Result<(), StoreFailure> {
        while !record.is_empty() {
            if self.connection.read_tls(&mut record)? == 0 {
                return Err(StoreFailure::Ended); // It has closed the connection.
            }
            let state = self.connection.process_new_packets();
            let bytes = state
                .map_err(|error| self.stranger(&error))?
                .plaintext_bytes_to_read();
            let start = plain.len();
            plain.resize(start + bytes, 0);
            self.connection.reader().read_exact(&mut plain[start..])?;
        }
        match self.open {
            true => Ok(()),
            false => self.greet(plain),
        }
    }

    /// Sends the server's greeting, once the handshake is complete.
    fn greet(&mut self, plain: &mut Vec<u8>) -> Result<(), StoreFailure> {
        if self.connection.is_handshaking() {
            return Ok(());
        }
        if self.connection.alpn_protocol() != Some(ALPN) {
            return Err(Malformed.into());
        }
        let greeting = PROTOCOL.as_bytes();
        match self.connection {
            Connection::Server(_) => self.connection.writer().write_all(greeting)?,
            Connection::Client(_) if plain.len() < greeting.len() => return Ok(()),
            Connection::Client(_) => {
                if plain.drain(..greeting.len()).as_slice() != greeting {
                    return Err(Malformed.into());
                }
            }
        }
        self.open = true;
        Ok(())
    }

    /// Appends bytes that must be sent.
    fn write(&mut self, wire: &mut Vec<u8>) {
        while self.connection.wants_write() {
            (self.connection.write_tls(wire)).expect("writing to memory does not fail");
        }
    }

    /// The failure that an error of the handshake reports about the other end.
    fn stranger(&self, error: &rustls::Error) -> StoreFailure {
        use rustls::Error::{AlertReceived, InvalidCertificate, InvalidMessage, PeerIncompatible};
        let own = self.credentials.cert().display();
        StoreFailure::Stranger(match error {
            InvalidCertificate(error) => format!("has a certificate that {}", flaw(error)),
            AlertReceived(alert) => match refusal(*alert) {
                Some(why) => format!("refuses this rank's certificate {own}, which {why}"),
                None => format!("has ended the TLS handshake ({alert:?})"),
            },
            InvalidMessage(_) => "does not use TLS".into(),
            PeerIncompatible(_) => format!("does not support TLS 1.3 ({error})"),
            error => format!("has failed in the TLS handshake ({error})"),
        })
    }
}

impl RecordLayer for TlsRecords {
    fn open(
        &mut self,
        received: &[u8],
        plain: &mut Vec<u8>,
        wire: &mut Vec<u8>,
    ) -> Result<(), StoreFailure> {
        if !self.open {
            self.handshake_bytes += received.len();
            if self.handshake_bytes > HANDSHAKE_BYTES_MAX {
                return Err(Malformed.into());
            }
        }
        let mut received = [std::mem::take(&mut self.partial).as_slice(), received].concat();
        let mut taken = 0;
        let mut result = Ok(());
        while result.is_ok() {
            match first_record(&received[taken..]) {
                Ok(Some(record)) => {
                    taken += record.len();
                    result = self.take(record, plain);
                }
                Ok(None) => break,
                Err(failure) => result = Err(failure),
            }
        }
        received.drain(..taken);
        self.partial = received;
        self.write(wire);
        result
    }

    fn seal(&mut self, plain: &[u8], wire: &mut Vec<u8>) {
        let written = self.connection.writer().write_all(plain);
        written.expect("a chunk is never too long");
        self.write(wire);
    }

    fn is_open(&self) -> bool {
        self.open
    }

    /// The handshake fails without a certificate.
    fn is_proven(&self) -> bool {
        self.open
    }

    fn held(&self) -> usize {
        match self.open {
            true => self.partial.len(),
            false => self.handshake_bytes,
        }
    }
}

/// The first record of these bytes, if it is complete.
fn first_record(bytes: &[u8]) -> Result<Option<&[u8]>, StoreFailure> {
    if (bytes.first()).is_some_and(|kind| !RECORD_TYPES.contains(kind)) {
        return Err(StoreFailure::Stranger("does not use TLS".into()));
    }
    let Some(&[_, _, _, high, low]) = bytes.first_chunk::<HEADER_BYTES>() else {
        return Ok(None);
    };
    let length = u16::from_be_bytes([high, low]) as usize;
    if length > RECORD_BYTES_MAX {
        return Err(Malformed.into());
    }
    Ok(bytes.get(..HEADER_BYTES + length))
}

/// The name that the server's certificate must be for: the host of a `host:port`.
fn server_name(address: &str) -> Result<ServerName<'static>, Error> {
    let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
    let host = host.trim_start_matches('[').trim_end_matches(']');
    if let Ok(ip) = host.parse::<IpAddr>() {
        return Ok(ip.into());
    }
    ServerName::try_from(host.to_owned()).map_err(|_| {
        Error::Config(format!(
            "{host:?}, where the ranks would meet, is no name that a certificate can be for: \
             choose a host's name or address as MASTER_ADDR"
        ))
    })
}

fn unusable(error: rustls::Error) -> Error {
    Error::Internal(format!("beginning a TLS handshake: {error}"))
}

/// The flaw of a certificate, if an alert reports one.
fn refusal(alert: AlertDescription) -> Option<&'static str> {
    Some(match alert {
        AlertDescription::UnknownCA | AlertDescription::DecryptError => {
            "is not signed by a CA of its tls_ca"
        }
        AlertDescription::CertificateExpired => "is not valid now, by its clock",
        AlertDescription::UnsupportedCertificate => "is not for clients (extendedKeyUsage)",
        AlertDescription::CertificateRevoked => "is revoked",
        AlertDescription::BadCertificate
        | AlertDescription::CertificateUnknown
        | AlertDescription::CertificateRequired
        | AlertDescription::AccessDenied => "it does not accept",
        _ => return None,
    })
}
