//! The ports of the devices of this machine, and the addresses (GIDs) by which peers reach them.

use std::fs;
use std::net::Ipv6Addr;
use std::path::{Path, PathBuf};

use weft_transport::fork::AboveStandardStreams;

use super::OpenDevice;
use super::device::with_devices;
use super::library::Verbs;

/// `IBV_PORT_ACTIVE`.
const ACTIVE: i32 = 4;
/// `IBV_LINK_LAYER_ETHERNET`.
const ETHERNET: u8 = 2;

/// A port of an RDMA device, as `weft doctor` shows it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Port {
    /// The device's name.
    pub device: String,
    /// The port's number, from 1.
    pub number: u8,
    /// Whether it has a link.
    pub active: bool,
    /// Whether it is RoCE; otherwise InfiniBand.
    pub ethernet: bool,
    /// The index of its address (GID): for RoCE, one of version 2, for IPv4 if there is one.
    pub gid_index: Option<u8>,
    /// That address.
    pub gid: [u8; 16],
    /// The largest packet, in verbs' encoding: 1 for 256 bytes, 5 for 4096.
    pub mtu: i32,
    /// The port's address in its InfiniBand subnet.
    pub lid: u16,
}

impl Port {
    /// Whether links can be made over it.
    pub fn is_usable(&self) -> bool {
        self.active && (self.gid_index.is_some() || !self.ethernet)
    }

    /// `device:port`.
    pub fn name(&self) -> String {
        format!("{}:{}", self.device, self.number)
    }

    /// Selects another address of its table.
    pub(crate) fn use_gid(&mut self, index: u8) -> Result<(), String> {
        let folder = class_folder(&self.device)
            .join("ports")
            .join(self.number.to_string());
        let text = fs::read_to_string(folder.join("gids").join(index.to_string()));
        let gid = text
            .ok()
            .and_then(|text| text.trim().parse::<Ipv6Addr>().ok());
        let gid = gid.filter(|gid| !gid.is_unspecified());
        let gid = gid.ok_or_else(|| format!("{} has no GID {index}", self.name()))?;
        (self.gid_index, self.gid) = (Some(index), gid.octets());
        Ok(())
    }

    /// A description for users.
    pub fn describe(&self) -> String {
        let kind = if self.ethernet {
            "RoCE v2"
        } else {
            "InfiniBand"
        };
        let state = if self.active { "active" } else { "no link" };
        let gid = match self.gid_index {
            Some(index) => format!("GID {index} ({})", Ipv6Addr::from(self.gid)),
            None => "no usable GID".into(),
        };
        let mtu = 128_u32 << self.mtu.clamp(1, 5);
        format!("{kind}, {state}, {gid}, MTU {mtu}")
    }

    fn find(device: &OpenDevice, name: &str, number: u8) -> std::io::Result<Port> {
        let attributes = device.port(number)?;
        let ethernet = attributes.link_layer == ETHERNET;
        let folder = class_folder(name).join("ports").join(number.to_string());
        let found = best_gid(&folder, ethernet);
        Ok(Port {
            device: name.into(),
            number,
            active: attributes.state == ACTIVE,
            ethernet,
            gid_index: found.map(|(index, _)| index),
            gid: found.map(|(_, gid)| gid).unwrap_or_default(),
            mtu: attributes.active_mtu,
            lid: attributes.lid,
        })
    }
}

/// The ports of all devices, in the order of their names.
///
/// # Errors
/// The reason that no port can be used: there is no library or no device, or devices cannot be
/// listed.
pub fn ports() -> Result<Vec<Port>, String> {
    let verbs = Verbs::get()?;
    let list = |devices: &[(String, _)]| {
        let mut names: Vec<_> = devices.iter().map(|(name, _)| name.clone()).collect();
        names.sort_unstable();
        names
    };
    let names = AboveStandardStreams::new().and_then(|_above| with_devices(verbs, list));
    let names = names.map_err(|error| format!("the RDMA devices cannot be listed: {error}"))?;
    let mut ports = Vec::new();
    for name in names {
        let device = OpenDevice::open(&name).map_err(|error| format!("{name}: {error}"))?;
        for number in numbers(&class_folder(&name)) {
            let port = Port::find(&device, &name, number);
            ports.push(port.map_err(|error| format!("{name}:{number}: {error}"))?);
        }
    }
    match ports.is_empty() {
        true => Err("this machine has no RDMA device".into()),
        false => Ok(ports),
    }
}

fn class_folder(device: &str) -> PathBuf {
    Path::new("/sys/class/infiniband").join(device)
}

fn numbers(device: &Path) -> Vec<u8> {
    numbered(&device.join("ports"))
}

/// The entries of a folder that are numbers, in order.
fn numbered(folder: &Path) -> Vec<u8> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let names = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let mut numbers: Vec<u8> = names.collect();
    numbers.sort_unstable();
    numbers
}

/// The best address in a port's table, with its index.
fn best_gid(port: &Path, ethernet: bool) -> Option<(u8, [u8; 16])> {
    let gids = numbered(&port.join("gids")).into_iter();
    let known = gids.filter_map(|index| {
        let text = fs::read_to_string(port.join("gids").join(index.to_string())).ok()?;
        let gid: Ipv6Addr = text.trim().parse().ok()?;
        let kind = fs::read_to_string(port.join("gid_attrs/types").join(index.to_string()));
        let routable = kind.is_ok_and(|kind| kind.trim() == "RoCE v2");
        let usable = !gid.is_unspecified() && (routable || !ethernet);
        // Link-local addresses work between neighbours only.
        let rank = (gid.to_ipv4_mapped().is_none(), gid.is_unicast_link_local());
        usable.then_some((rank, index, gid.octets()))
    });
    known.min().map(|(_, index, gid)| (index, gid))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As the kernel lists them: version 1 and 2, link-local and of IPv4, and empty entries.
    #[test]
    fn the_routable_address_of_ipv4_is_preferred() {
        let port = std::env::temp_dir().join(format!("weft-gids-{}", std::process::id()));
        let entries = [
            ("fe80:0000:0000:0000:0000:0000:0000:0001", "IB/RoCE v1"),
            ("fe80:0000:0000:0000:0000:0000:0000:0001", "RoCE v2"),
            ("0000:0000:0000:0000:0000:ffff:0a09:0001", "IB/RoCE v1"),
            ("0000:0000:0000:0000:0000:ffff:0a09:0001", "RoCE v2"),
            ("0000:0000:0000:0000:0000:0000:0000:0000", ""),
        ];
        fs::create_dir_all(port.join("gids")).unwrap();
        fs::create_dir_all(port.join("gid_attrs/types")).unwrap();
        for (index, (gid, kind)) in entries.iter().enumerate() {
            fs::write(port.join("gids").join(index.to_string()), gid).unwrap();
            fs::write(port.join("gid_attrs/types").join(index.to_string()), kind).unwrap();
        }
        let found = best_gid(&port, true);
        fs::remove_dir_all(&port).unwrap();
        let expected = std::net::Ipv4Addr::new(10, 9, 0, 1).to_ipv6_mapped();
        assert_eq!(found, Some((3, expected.octets())));
    }
}
