//! The addresses that ranks publish, with the names of their interfaces, for a diagnosis.

use std::net::IpAddr;

use weft_transport::LinkError;

use crate::interface::{self, Interface};

/// An address of this host on one of the networks that ranks use.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NamedAddress {
    /// The number of the network. Those of one number are connected with each other.
    pub network: u8,
    /// The name of the interface with this address.
    pub interface: String,
    /// The address itself.
    pub ip: IpAddr,
}

impl Interface {
    /// The addresses that ranks with this choice publish: by network, the best first.
    ///
    /// # Errors
    /// [`LinkError::Setup`] if it names no usable network.
    pub fn named_addresses(&self) -> Result<Vec<NamedAddress>, LinkError> {
        let known = interface::interfaces()?;
        let named = |(network, ip)| NamedAddress {
            network,
            interface: name_of(ip, &known),
            ip,
        };
        Ok(self.addresses()?.into_iter().map(named).collect())
    }
}

/// The name of the interface with an address; the address itself if it has just been taken away.
fn name_of(ip: IpAddr, known: &[(String, IpAddr)]) -> String {
    let found = known.iter().find(|(_, address)| *address == ip);
    found.map_or_else(|| ip.to_string(), |(name, _)| name.clone())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_have_the_names_of_their_interfaces() {
        let found = Interface::Named("127.0.0.1, lo".into()).named_addresses();
        let found = found.unwrap();
        assert_eq!(
            found[0],
            found
                .iter()
                .find(|at| at.network == 1)
                .unwrap()
                .clone()
                .on(0)
        );
        assert_eq!(
            (found[0].interface.as_str(), found[0].ip.is_loopback()),
            ("lo", true)
        );
    }

    impl NamedAddress {
        fn on(self, network: u8) -> Self {
            Self { network, ..self }
        }
    }

    #[test]
    fn address_without_an_interface_is_its_own_name() {
        assert_eq!(name_of([10, 9, 8, 7].into(), &[]), "10.9.8.7");
    }
}
