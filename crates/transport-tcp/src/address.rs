//! The address of an endpoint: IP addresses by network, a port, and the public key.
#![forbid(unsafe_code)]

use std::net::{IpAddr, SocketAddr};

use weft_transport::LinkError;

use crate::encryption::CipherOffer;
use crate::handshake::PublicKey;

/// More than any host has.
const ADDRESSES_MAX: usize = 16;

/// The address at which an endpoint listens.
///
/// As bytes: port (2, little-endian), public key (32), ciphers (1), then per IP address its length
/// (4 or 16), the number of its network, and its bytes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct TcpAddress {
    pub(crate) port: u16,
    pub(crate) key: PublicKey,
    /// The ciphers that can encrypt its links.
    pub(crate) ciphers: CipherOffer,
    /// Each with the number of its network: addresses of one network are tried in this order,
    /// several networks can be used at the same time.
    pub(crate) ips: Vec<(u8, IpAddr)>,
}

impl TcpAddress {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut bytes = self.port.to_le_bytes().to_vec();
        bytes.extend(self.key);
        bytes.push(self.ciphers.to_byte());
        for (network, ip) in &self.ips {
            match ip {
                IpAddr::V4(v4) => bytes.extend([&[4, *network][..], &v4.octets()].concat()),
                IpAddr::V6(v6) => bytes.extend([&[16, *network][..], &v6.octets()].concat()),
            }
        }
        bytes
    }

    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, LinkError> {
        Self::parse(bytes).ok_or_else(|| LinkError::Refused("not the address of a TCP peer".into()))
    }

    /// All of them, in the order in which to try them.
    pub(crate) fn sockets(&self) -> impl Iterator<Item = SocketAddr> {
        self.ips
            .iter()
            .map(|(_, ip)| SocketAddr::new(*ip, self.port))
    }

    /// The number of networks.
    pub(crate) fn networks(&self) -> usize {
        let numbers = self
            .ips
            .iter()
            .map(|(network, _)| usize::from(*network) + 1);
        numbers.max().unwrap_or(0)
    }

    /// The best address of a network.
    pub(crate) fn in_network(&self, number: usize) -> Option<SocketAddr> {
        let mut ips = self.ips.iter();
        let (_, ip) = ips.find(|(network, _)| usize::from(*network) == number)?;
        Some(SocketAddr::new(*ip, self.port))
    }

    fn parse(bytes: &[u8]) -> Option<Self> {
        let (port, bytes) = bytes.split_first_chunk()?;
        let (key, bytes) = bytes.split_first_chunk()?;
        let (ciphers, mut bytes) = bytes.split_first()?;
        let ciphers = CipherOffer::from_byte(*ciphers)?;
        let mut ips = Vec::new();
        while let Some((length, rest)) = bytes.split_first() {
            let (network, rest) = rest.split_first()?;
            let (ip, rest) = rest.split_at_checked((*length).into())?;
            let ip = match length {
                4 => IpAddr::from(<[u8; 4]>::try_from(ip).ok()?),
                16 => IpAddr::from(<[u8; 16]>::try_from(ip).ok()?),
                _ => return None,
            };
            ips.push((*network, ip));
            bytes = rest;
        }
        let port = u16::from_le_bytes(*port);
        let usable = port != 0 && (1..=ADDRESSES_MAX).contains(&ips.len());
        usable.then_some(Self {
            port,
            key: *key,
            ciphers,
            ips,
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn every_address_survives(
            port in 1..=u16::MAX,
            key: [u8; 32],
            ciphers in 0..4_u8,
            ips in prop::collection::vec(any::<(u8, IpAddr)>(), 1..=ADDRESSES_MAX),
        ) {
            let ciphers = CipherOffer::from_byte(ciphers).unwrap();
            let address = TcpAddress { port, key, ciphers, ips };
            prop_assert_eq!(TcpAddress::decode(&address.encode()).unwrap(), address);
        }

        #[test]
        fn random_bytes_are_refused_or_valid(
            head: [u8; 34],
            ciphers in 0..6_u8,
            tail in prop::collection::vec(prop_oneof![Just(4_u8), Just(16), any::<u8>()], 0..80),
        ) {
            let bytes = [&head[..], &[ciphers], &tail].concat();
            if let Ok(address) = TcpAddress::decode(&bytes) {
                prop_assert_eq!(address.encode(), bytes);
            }
        }
    }
}
