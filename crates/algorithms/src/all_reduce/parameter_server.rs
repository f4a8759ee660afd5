//! Synchronous parameter server, with some ranks as servers, each for one shard of the message.
//!
//! Every rank pushes each shard to its server, which combines them in the order of ranks and sends
//! the result back. As every rank of an all-reduce contributes, servers are ranks that have a
//! vector of their own as well. With a shard on every rank it is `two-shot`.
//!
//! Without a number there is one server for each innermost unit of the topology; a number of
//! servers is spread over the units.
//!
//! Source: Li et al., "Scaling distributed machine learning with the parameter server", 2014.

use weft_schedule::{Grid, Rank, Schedule};

use crate::cost::expression::{Expr, OTHERS, RANKS};
use crate::cost::formula::Rounds;
use crate::patterns::builder::{ProgramBuilder, block};
use crate::patterns::crossing;
use crate::{
    About, Algorithm, Costs, Formula, Part, Parts, Requirements, ScheduleRequest, Symmetry,
};

pub(crate) const ALGORITHM: Algorithm = Algorithm {
    name: "parameter-server",
    collective: "all-reduce",
    summary: "shards are pushed to servers, combined there, and sent back; two steps, many to few",
    about: About {
        how: "Some ranks are servers, each for a shard. Every rank pushes each shard to its server, which \
              combines them in one pass in the order of ranks and sends the result back. \
              `parameter-server(k)` has k servers, spread over the units of the topology; without a number \
              each innermost unit has one. Every rank of an all-reduce contributes, so servers differ from the other ranks only by their additional work: a server has a vector of its own as well. \
              With a shard on every rank it is `two-shot`.",
        wins: "Where few ranks have much faster links than the others.",
        source: "Li et al., \"Scaling distributed machine learning with the parameter server\", 2014",
        quote: "Li et al. 2014: every worker pushes n / k to each of k servers and pulls as much; here servers \
              have a vector of their own, so one answers p - 1 and pushes k - 1 times",
    },
    requires: Requirements {
        parts: Parts::Count {
            of: "servers",
            period,
        },
        ..Requirements::REPRODUCIBLE
    },
    symmetry: Symmetry::None,
    costs: Costs::Phases(formula),
    build,
};

/// The servers, ascending: the first ranks of all units, then the second ones, and so on.
fn servers(request: &ScheduleRequest) -> Vec<Rank> {
    let units = match request.topology.depth() {
        0 => vec![(0..request.ranks).collect()],
        _ => request.topology.units(0),
    };
    let wanted = match request.parts {
        [Part::Count(count)] => *count as usize,
        _ => units.len(),
    };
    let mut by_turn: Vec<(usize, Rank)> = units
        .iter()
        .flat_map(|unit| unit.iter().copied().enumerate())
        .collect();
    by_turn.sort_unstable();
    by_turn.truncate(wanted.max(1));
    let mut servers: Vec<Rank> = by_turn.into_iter().map(|(_, rank)| rank).collect();
    servers.sort_unstable();
    servers
}

/// If every unit has the same number of servers, units are interchangeable.
fn period(request: &ScheduleRequest) -> Option<u32> {
    let unit = request.topology.even_unit()?;
    let servers = servers(request);
    let next = |server: &Rank| (server + unit) % request.ranks;
    let even = servers
        .iter()
        .all(|server| servers.binary_search(&next(server)).is_ok());
    even.then_some(unit)
}

/// The busiest ranks are servers.
fn formula(request: &ScheduleRequest) -> Formula {
    let servers = servers(request);
    let count = servers.len() as u32;
    let share = Expr::parts(1, count.into());
    let step = Rounds::signals(1).crossing(crossing::to_some(request, &servers) / f64::from(count));
    let push = step
        .sending(count - 1, share)
        .receiving(OTHERS * share)
        .reducing(RANKS * share);
    let taken_in = if count == request.ranks {
        count - 1
    } else {
        count
    };
    let answer = step
        .sending(OTHERS, share)
        .receiving(share * (count - 1))
        .copying(request.staged(share * taken_in));
    Formula::of([push, answer])
        .all_send(OTHERS * 2)
        .sent_described("servers: N (P + k − 2) / k")
}

fn build(request: &ScheduleRequest) -> Schedule {
    let servers = servers(request);
    let mut b = ProgramBuilder::new(request, Grid::Equal(servers.len() as u32));
    if request.ranks == 1 {
        return b.build();
    }
    let contributions = b.add_receive_buffer(1);
    let results = b.add_staging(1);
    // Beginning with the next server: another one in every unit.
    let mut shards: Vec<(Rank, u32)> = servers.iter().copied().zip(0..).collect();
    let next = servers.partition_point(|server| *server < request.rank);
    shards.rotate_left(next);
    let remote = || shards.iter().filter(|(server, _)| *server != request.rank);

    for &(server, shard) in remote() {
        let dst = b.outbox(server, contributions, block(shard));
        b.copy(vec![dst], b.output(block(shard)));
        b.signal(server);
    }
    if let Ok(shard) = servers.binary_search(&request.rank) {
        let own = block(shard as u32);
        b.wait_all();
        let srcs = b.in_rank_order(b.output(own.clone()), |b, peer| {
            b.inbox(peer, contributions, own.clone())
        });
        b.reduce_final(vec![b.output(own.clone())], srcs);
        // Every peer's contribution has arrived, so every peer has entered.
        let peers = b.peers().into_iter();
        let dsts = peers.map(|peer| b.destination(peer, results, own.clone()));
        b.copy(dsts.collect(), b.output(own));
        b.signal_all();
    }
    for &(server, shard) in remote() {
        b.accept(server, results, block(shard));
    }
    b.build()
}
