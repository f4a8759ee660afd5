//! The address of a rank's endpoint, as published to the other ranks.

use serde::{Deserialize, Serialize};
use weft_transport::{EndpointId, TransportKind};

use weft_call::Error;

/// More than any honest address needs.
const ADDRESS_BYTES_MAX: usize = 4096;

/// The identity of an endpoint, and how to connect to it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct EndpointAddress {
    /// The endpoint.
    pub id: EndpointId,
    /// The name of its host, for messages.
    pub host_name: String,
    /// Its process, for messages.
    pub pid: u32,
    /// Distinguishes running machines: endpoints with different values cannot share memory.
    pub boot_id: String,
    /// Its transports. The best is first; there is at least one.
    pub transports: Vec<TransportAddress>,
}

/// A transport of an endpoint, as published.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct TransportAddress {
    /// The kind of links that it makes.
    #[serde(with = "code")]
    pub kind: TransportKind,
    /// Whether it maps memory, and so only joins endpoints that can share some.
    pub maps: bool,
    /// Whether it is only used if all ranks have it.
    pub optional: bool,
    /// The information needed to connect.
    pub bytes: Vec<u8>,
}

#[derive(Serialize, Deserialize)]
struct AddressFormat {
    id: u128,
    host_name: String,
    pid: u32,
    boot_id: String,
    transports: Vec<TransportAddress>,
}

impl EndpointAddress {
    /// The address for this kind of link, if the endpoint offers it.
    pub fn of(&self, kind: TransportKind) -> Option<&[u8]> {
        let found = self
            .transports
            .iter()
            .find(|transport| transport.kind == kind);
        found.map(|transport| transport.bytes.as_slice())
    }

    /// The best transport that maps memory, or the best of those that reach every endpoint.
    pub fn best(&self, maps: bool) -> Option<&TransportAddress> {
        self.transports
            .iter()
            .find(|transport| transport.maps == maps)
    }

    /// The common identity of all endpoints on one machine, regardless of host labels.
    pub fn machine(&self) -> &str {
        self.boot_id.split('/').next().unwrap_or_default()
    }

    /// The kinds of links that the endpoint offers.
    pub fn kinds(&self) -> impl Iterator<Item = TransportKind> {
        self.transports.iter().map(|transport| transport.kind)
    }

    /// As bytes, for a peer.
    pub fn to_bytes(&self) -> Vec<u8> {
        let wire = AddressFormat {
            id: self.id.0,
            host_name: self.host_name.clone(),
            pid: self.pid,
            boot_id: self.boot_id.clone(),
            transports: self.transports.clone(),
        };
        postcard::to_stdvec(&wire).expect("writing to memory does not fail")
    }

    /// Parses a peer's bytes.
    ///
    /// # Errors
    /// [`Error::Config`] if the bytes are not an address of this version of weft.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, Error> {
        let malformed = |what: &str| {
            Error::Config(format!(
                "the rendezvous holds a value that is not an address of this version of weft ({what}). \
                 Is the rendezvous used by another job?"
            ))
        };
        if bytes.len() > ADDRESS_BYTES_MAX {
            return Err(malformed("too long"));
        }
        let (wire, rest): (AddressFormat, &[u8]) =
            postcard::take_from_bytes(bytes).map_err(|_| malformed("unreadable"))?;
        if !rest.is_empty() {
            return Err(malformed("too long"));
        }
        if wire.transports.is_empty() {
            return Err(malformed("no transport"));
        }
        Ok(Self {
            id: EndpointId(wire.id),
            host_name: wire.host_name,
            pid: wire.pid,
            boot_id: wire.boot_id,
            transports: wire.transports,
        })
    }
}

/// Kinds as numbers.
mod code {
    use serde::de::{Deserialize, Deserializer, Error};
    use serde::ser::{Serialize, Serializer};
    use weft_transport::TransportKind;

    const KINDS: [TransportKind; 5] = [
        TransportKind::Loopback,
        TransportKind::Shm,
        TransportKind::Tcp,
        TransportKind::Custom,
        TransportKind::Rdma,
    ];

    pub(super) fn serialize<S: Serializer>(kind: &TransportKind, to: S) -> Result<S::Ok, S::Error> {
        let code = KINDS.iter().position(|other| other == kind);
        (code.unwrap_or_default() as u8).serialize(to)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        from: D,
    ) -> Result<TransportKind, D::Error> {
        let code = u8::deserialize(from)?;
        let kind = KINDS.get(usize::from(code)).copied();
        kind.ok_or_else(|| D::Error::custom("unknown transport"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn example() -> EndpointAddress {
        EndpointAddress {
            id: EndpointId(7),
            host_name: "node1".into(),
            pid: 12,
            boot_id: "b".into(),
            transports: vec![
                TransportAddress {
                    kind: TransportKind::Shm,
                    maps: true,
                    optional: false,
                    bytes: vec![1, 2],
                },
                TransportAddress {
                    kind: TransportKind::Tcp,
                    maps: false,
                    optional: false,
                    bytes: vec![3],
                },
            ],
        }
    }

    #[test]
    fn round_trip() {
        let address = example();
        assert_eq!(
            EndpointAddress::from_bytes(&address.to_bytes()).unwrap(),
            address
        );
        assert_eq!(address.of(TransportKind::Tcp), Some(&[3][..]));
        assert_eq!(address.of(TransportKind::Loopback), None);
        let best = |maps| address.best(maps).map(|transport| transport.kind);
        assert_eq!(
            (best(true), best(false)),
            (Some(TransportKind::Shm), Some(TransportKind::Tcp))
        );
    }

    #[test]
    fn malformed_addresses_are_errors() {
        let good = example().to_bytes();
        for cut in 0..good.len() {
            assert!(EndpointAddress::from_bytes(&good[..cut]).is_err());
        }
        assert!(EndpointAddress::from_bytes(&[good, vec![0]].concat()).is_err());
        assert!(EndpointAddress::from_bytes(&vec![0; ADDRESS_BYTES_MAX + 1]).is_err());
        assert!(EndpointAddress::from_bytes(&[0xff; 100]).is_err());
    }
}
