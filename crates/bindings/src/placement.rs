//! Which ranks share a host, as people say it.

use serde::Deserialize;
use serde_json::Value;

/// How ranks are spread over hosts: consecutive ranks share one.
#[derive(Clone, Debug, Deserialize)]
#[serde(try_from = "Value")]
pub(crate) enum Hosts {
    /// So many hosts, with equal numbers of ranks, or the first ones with one more.
    Number(u32),
    /// The number of ranks on each host.
    Ranks(Vec<u32>),
}

impl TryFrom<Value> for Hosts {
    type Error = String;

    fn try_from(value: Value) -> Result<Self, String> {
        let number = |value: &Value| value.as_u64().and_then(|number| u32::try_from(number).ok());
        let found = match &value {
            Value::Array(sizes) => sizes
                .iter()
                .map(number)
                .collect::<Option<_>>()
                .map(Hosts::Ranks),
            other => number(other).map(Hosts::Number),
        };
        found.ok_or_else(|| {
            format!("hosts={value}: a number of hosts, or a list of the numbers of ranks on each")
        })
    }
}

impl Hosts {
    /// The host of each of `ranks` ranks.
    ///
    /// # Errors
    /// What is wrong with the hosts for so many ranks.
    pub(crate) fn of_ranks(&self, ranks: u32) -> Result<Vec<u32>, String> {
        Ok(self
            .sizes(ranks)?
            .iter()
            .zip(0..)
            .flat_map(|(size, host)| std::iter::repeat_n(host, *size as usize))
            .collect())
    }

    /// The number of ranks on each host, where there are `ranks` ranks.
    ///
    /// # Errors
    /// What is wrong with the hosts for so many ranks.
    pub(crate) fn sizes(&self, ranks: u32) -> Result<Vec<u32>, String> {
        match self {
            Hosts::Number(hosts) if *hosts == 0 || *hosts > ranks => Err(format!(
                "{hosts} hosts for {ranks} ranks: give 1 to {ranks}"
            )),
            Hosts::Number(hosts) => Ok((0..*hosts)
                .map(|host| ranks / hosts + u32::from(host < ranks % hosts))
                .collect()),
            Hosts::Ranks(sizes) => {
                let total: u64 = sizes.iter().map(|size| u64::from(*size)).sum();
                if total != u64::from(ranks) || sizes.contains(&0) {
                    return Err(format!(
                        "hosts of {sizes:?} ranks for {ranks} ranks: each has at least 1, all together {ranks}"
                    ));
                }
                Ok(sizes.clone())
            }
        }
    }
}

/// How the ranks of hosts are spread over domains: consecutive ranks of a host share one.
#[derive(Clone, Debug, Deserialize)]
#[serde(transparent)]
pub(crate) struct Domains(Hosts);

impl Domains {
    /// The domain of each rank: so many in each host, or the number of ranks in each, host by host.
    ///
    /// # Errors
    /// What is wrong with the domains for hosts with so many ranks.
    pub(crate) fn of_ranks(&self, ranks_of_hosts: &[u32]) -> Result<Vec<u32>, String> {
        let named = |error: String| format!("domains: {}", error.replace("hosts", "domains"));
        match &self.0 {
            Hosts::Number(_) => {
                let of_hosts = ranks_of_hosts.iter().map(|ranks| self.0.of_ranks(*ranks));
                let of_hosts: Vec<Vec<u32>> = of_hosts.collect::<Result<_, _>>().map_err(named)?;
                Ok(of_hosts.concat())
            }
            Hosts::Ranks(_) => {
                let ranks = ranks_of_hosts.iter().sum();
                let domains = self.0.of_ranks(ranks).map_err(named)?;
                let ends = ranks_of_hosts.iter().scan(0, |end: &mut u32, ranks| {
                    *end += ranks;
                    Some(*end as usize)
                });
                for end in ends.filter(|end| *end < domains.len()) {
                    if domains[end - 1] == domains[end] {
                        return Err(format!(
                            "domains: ranks {} and {end} share one, but no host",
                            end - 1
                        ));
                    }
                }
                Ok(domains)
            }
        }
    }
}
