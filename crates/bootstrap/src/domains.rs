//! Domains of the host that contain a process, as reported by the operating system: the shared
//! cache and the NUMA node.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

/// The parts of its host that contain a process. A part contains it if it contains every core that
/// the process may run on.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Domain {
    /// Its last-level cache, by the lowest core that shares it.
    pub cache: Option<u32>,
    /// Its NUMA node.
    pub node: Option<u32>,
}

/// The parts of a host, by their cores.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct HostParts {
    /// The last-level caches, in the order of their lowest cores.
    pub caches: Vec<Vec<u32>>,
    /// The NUMA nodes with cores, in the order of their numbers.
    pub nodes: Vec<Vec<u32>>,
}

impl Domain {
    /// The parts reported for this process. A part that cannot be read is unknown.
    pub fn of_this_process() -> Domain {
        Domain::read(Path::new("/"))
    }

    fn read(root: &Path) -> Domain {
        let allowed = allowed_cores(root);
        let Some(first) = allowed.first() else {
            return Domain::default();
        };
        let within = |cores: &BTreeSet<u32>| allowed.is_subset(cores);
        let node = nodes(root)
            .into_iter()
            .find(|(_, cores)| within(cores))
            .map(|(number, _)| number);
        let cache = last_level_cache(root, *first).filter(within);
        Domain {
            cache: cache.and_then(|cores| cores.first().copied()),
            node,
        }
    }
}

impl HostParts {
    /// The parts reported for this host.
    pub fn of_this_host() -> HostParts {
        HostParts::read(Path::new("/"))
    }

    fn read(root: &Path) -> HostParts {
        let cores = cores_at(&root.join("sys/devices/system/cpu/online"));
        let caches: BTreeSet<Vec<u32>> = (cores.iter())
            .filter_map(|core| last_level_cache(root, *core))
            .map(|cores| cores.into_iter().collect())
            .collect();
        let nodes = nodes(root).into_iter();
        HostParts {
            caches: caches.into_iter().collect(),
            nodes: nodes
                .map(|(_, cores)| cores.into_iter().collect())
                .collect(),
        }
    }
}

/// The cores that this process may run on.
fn allowed_cores(root: &Path) -> BTreeSet<u32> {
    let status = fs::read_to_string(root.join("proc/self/status")).unwrap_or_default();
    let list = status
        .lines()
        .find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
    cores_of(list.unwrap_or_default()).unwrap_or_default()
}

/// The NUMA nodes with cores, by number.
fn nodes(root: &Path) -> Vec<(u32, BTreeSet<u32>)> {
    let mut nodes: Vec<(u32, BTreeSet<u32>)> =
        numbered(&root.join("sys/devices/system/node"), "node")
            .into_iter()
            .map(|(number, node)| (number, cores_at(&node.join("cpulist"))))
            .filter(|(_, cores)| !cores.is_empty())
            .collect();
    nodes.sort_unstable();
    nodes
}

/// The cores that share a core's cache of the highest level.
fn last_level_cache(root: &Path, core: u32) -> Option<BTreeSet<u32>> {
    let caches = root.join(format!("sys/devices/system/cpu/cpu{core}/cache"));
    let level = |cache: &PathBuf| -> Option<u32> {
        let text = fs::read_to_string(cache.join("level")).ok()?;
        text.trim().parse().ok()
    };
    let caches = numbered(&caches, "index")
        .into_iter()
        .map(|(_, cache)| cache);
    let last = caches
        .filter_map(|cache| Some((level(&cache)?, cache)))
        .max()?;
    let cores = cores_at(&last.1.join("shared_cpu_list"));
    (!cores.is_empty()).then_some(cores)
}

/// The entries of a directory that are named by this prefix and a number.
fn numbered(directory: &Path, name: &str) -> Vec<(u32, PathBuf)> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let number = |path: &PathBuf| -> Option<u32> {
        let file = path.file_name()?.to_str()?;
        file.strip_prefix(name)?.parse().ok()
    };
    entries
        .filter_map(|entry| Some((number(&entry.path())?, entry.path())))
        .collect()
}

fn cores_at(file: &Path) -> BTreeSet<u32> {
    let text = fs::read_to_string(file).unwrap_or_default();
    cores_of(&text).unwrap_or_default()
}

/// The cores of a list such as `0-3,8`; None if it is malformed.
fn cores_of(list: &str) -> Option<BTreeSet<u32>> {
    let mut cores = BTreeSet::new();
    for range in list.trim().split(',').filter(|range| !range.is_empty()) {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        cores.extend(first.parse::<u32>().ok()?..=last.parse().ok()?);
    }
    Some(cores)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A directory that is removed after the test.
    struct Root(PathBuf);

    impl Root {
        fn new(name: &str) -> Self {
            let name = format!("weft-domains-{name}-{}", std::process::id());
            Root(std::env::temp_dir().join(name))
        }

        fn write(&self, path: &str, text: &str) {
            let path = self.0.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }

        fn allow(&self, cores: &str) {
            let status = format!("Name:\tx\nCpus_allowed:\tff\nCpus_allowed_list:\t{cores}\n");
            self.write("proc/self/status", &status);
        }

        /// Two NUMA nodes of four cores, each with two caches that two cores share.
        fn two_nodes(name: &str) -> Self {
            let root = Root::new(name);
            root.write("sys/devices/system/cpu/online", "0-7\n");
            for node in 0..2 {
                let list = format!("{}-{}\n", 4 * node, 4 * node + 3);
                root.write(
                    &format!("sys/devices/system/node/node{node}/cpulist"),
                    &list,
                );
            }
            root.write("sys/devices/system/node/node2/cpulist", "\n");
            for core in 0..8 {
                let pair = core - core % 2;
                let own = [core.to_string(), format!("{pair}-{}", pair + 1)];
                for (index, (level, shared)) in [("1", &own[0]), ("3", &own[1])].iter().enumerate()
                {
                    let cache = format!("sys/devices/system/cpu/cpu{core}/cache/index{index}");
                    root.write(&format!("{cache}/level"), level);
                    root.write(&format!("{cache}/shared_cpu_list"), shared);
                }
            }
            root
        }
    }

    impl Drop for Root {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn parts_contain_all_cores_of_a_process() {
        let root = Root::two_nodes("within");
        for (cores, cache, node) in [
            ("5", Some(4), Some(1)),
            ("6-7", Some(6), Some(1)),
            ("4,7", None, Some(1)),
            ("0-3", None, Some(0)),
            ("3-4", None, None),
            ("0-7", None, None),
        ] {
            root.allow(cores);
            assert_eq!(Domain::read(&root.0), Domain { cache, node }, "{cores}");
        }
    }

    #[test]
    fn unreadable_parts_are_unknown() {
        let root = Root::new("nothing");
        assert_eq!(Domain::read(&root.0), Domain::default());
        root.allow("0-1");
        assert_eq!(Domain::read(&root.0), Domain::default());
        root.allow("none");
        assert_eq!(Domain::read(&root.0), Domain::default());
        let none = HostParts {
            caches: vec![],
            nodes: vec![],
        };
        assert_eq!(HostParts::read(&root.0), none);
    }

    #[test]
    fn a_host_has_parts() {
        let root = Root::two_nodes("parts");
        let parts = HostParts::read(&root.0);
        assert_eq!(
            parts.caches,
            [vec![0, 1], vec![2, 3], vec![4, 5], vec![6, 7]]
        );
        assert_eq!(parts.nodes, [[0, 1, 2, 3], [4, 5, 6, 7]]);
    }
}
