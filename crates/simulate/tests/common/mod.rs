//! Machines and collectives that the tests share.

use weft_schedule::Collective;
use weft_simulate::{Host, Link, Machine, Switch};

/// Every collective, with the root in the middle.
pub(crate) fn collectives(ranks: u32) -> Vec<Collective> {
    let root = ranks / 2;
    vec![
        Collective::AllReduce,
        Collective::Reduce { root },
        Collective::Broadcast { root },
        Collective::AllGather,
        Collective::ReduceScatter,
        Collective::AllToAll,
        Collective::Gather { root },
        Collective::Scatter { root },
        Collective::Barrier,
    ]
}

/// Hosts with fast links and with everything that ranks can share.
pub(crate) fn machines(ranks: u32, hosts: u32) -> Vec<Machine> {
    let plain = Machine::even(ranks, hosts, Host::default(), Link::default()).unwrap();
    let mut crowded = plain.clone();
    crowded.host.cores = 2;
    crowded.host.memory_bytes_per_s = Some(12e9);
    crowded.network.send_s_per_byte = 1e-10;
    crowded.network.receive_s_per_byte = 1.5e-10;
    crowded.network.connection_bytes_per_s = Some(1e9);
    crowded.network.buffer_bytes = 64 << 10;
    let mut switched = plain.clone();
    switched.switches = vec![
        Switch {
            hosts: 2,
            oversubscription: 3.0,
            latency_s: 1e-6,
        },
        Switch {
            hosts: 4,
            oversubscription: 1.5,
            latency_s: 2e-6,
        },
    ];
    let mut loopback = plain.clone();
    loopback.host.loopback = Some(Link {
        latency_s: 10e-6,
        bytes_per_s: 3e9,
        ..Link::default()
    });
    vec![plain, crowded, switched, loopback]
}
