//! The address of an endpoint: boot identity, token and socket name.

use std::io;

use weft_transport::{LinkError, failed};

const VERSION: u8 = 1;
const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";
const NAME_BYTES_MAX: usize = 100;

/// The boot of the kernel, the token of the endpoint, and the name of its socket.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct ShmAddress {
    pub(crate) boot: [u8; 16],
    pub(crate) token: [u8; 32],
    pub(crate) name: Vec<u8>,
}

impl ShmAddress {
    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        [&[VERSION][..], &self.boot, &self.token, &self.name].concat()
    }

    pub(crate) fn from_bytes(bytes: &[u8]) -> Result<ShmAddress, LinkError> {
        ShmAddress::parse(bytes)
            .ok_or_else(|| LinkError::Refused("this is not a shared-memory address".into()))
    }

    fn parse(bytes: &[u8]) -> Option<ShmAddress> {
        let (version, rest) = bytes.split_first()?;
        let (boot, rest) = rest.split_first_chunk()?;
        let (token, name) = rest.split_first_chunk()?;
        let well_formed = *version == VERSION && (1..=NAME_BYTES_MAX).contains(&name.len());
        well_formed.then(|| ShmAddress {
            boot: *boot,
            token: *token,
            name: name.to_vec(),
        })
    }
}

/// Identifies the running kernel: processes with different boots certainly share no memory. (With
/// equal boots they may: containers of one host are distinguished by trying.)
pub(crate) fn boot_id() -> io::Result<[u8; 16]> {
    let text = std::fs::read_to_string(BOOT_ID);
    let text = text.map_err(|error| failed(format!("open {BOOT_ID}"), error))?;
    parse_boot_id(&text).ok_or_else(|| {
        io::Error::new(
            io::ErrorKind::InvalidData,
            format!("{BOOT_ID} holds no boot identity"),
        )
    })
}

fn parse_boot_id(text: &str) -> Option<[u8; 16]> {
    let digits: String = text.trim().chars().filter(|&c| c != '-').collect();
    if digits.len() != 32 {
        return None;
    }
    u128::from_str_radix(&digits, 16)
        .ok()
        .map(u128::to_be_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_round_trip() {
        let address = ShmAddress {
            boot: [3; 16],
            token: [7; 32],
            name: b"weft-x".to_vec(),
        };
        assert_eq!(
            ShmAddress::from_bytes(&address.to_bytes()).unwrap(),
            address
        );
    }

    #[test]
    fn malformed_addresses_are_refused() {
        let good = ShmAddress {
            boot: [3; 16],
            token: [7; 32],
            name: b"weft-x".to_vec(),
        }
        .to_bytes();
        for len in 0..50 {
            assert!(
                ShmAddress::from_bytes(&good[..len.min(49)]).is_err(),
                "{len} bytes"
            );
        }
        assert!(ShmAddress::from_bytes(&[good.clone(), vec![b'x'; 100]].concat()).is_err());
        assert!(ShmAddress::from_bytes(&[&[9], &good[1..]].concat()).is_err());
    }

    #[test]
    fn boot_ids_are_read() {
        let text = "3f6ab0f1-0000-4000-8000-0123456789ab\n";
        let id = parse_boot_id(text).unwrap();
        assert_eq!((id[0], id[15]), (0x3f, 0xab));
        assert_eq!(parse_boot_id("no"), None);
        assert_eq!(boot_id().unwrap(), boot_id().unwrap());
    }
}
