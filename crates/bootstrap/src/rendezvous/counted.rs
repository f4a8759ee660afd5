//! The cost of a rendezvous, counted: the exchange of all ranks by the functions that ranks call,
//! one after the other, through a store that counts.

use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use weft_transport::EndpointId;
use weft_transport_tcp::Encryption;

use super::exchange::{Exchange, Topic};
use super::roster::{Common, RankHello, Roster};
use super::*;
use crate::store_tcp::KEYS_MAX;
use crate::{EndpointOptions, MemoryStore};

/// Ranks of a host.
const PER_HOST: u32 = 8;

/// The requests to the store, and its replies.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
struct StoreTraffic {
    requests: usize,
    set_bytes: usize,
    got_bytes: usize,
}

/// A rank's view of a store.
struct CountingStore<'a> {
    inner: &'a MemoryStore,
    traffic: std::sync::Mutex<StoreTraffic>,
}

impl<'a> CountingStore<'a> {
    fn of(inner: &'a MemoryStore) -> Self {
        CountingStore {
            inner,
            traffic: Default::default(),
        }
    }

    fn traffic(&self) -> StoreTraffic {
        *self.traffic.lock().unwrap()
    }
}

impl Store for CountingStore<'_> {
    fn set(&self, key: &str, value: &[u8]) -> Result<(), Error> {
        let mut traffic = self.traffic.lock().unwrap();
        traffic.requests += 1;
        traffic.set_bytes += key.len() + value.len();
        self.inner.set(key, value)
    }

    fn get(&self, key: &str, deadline: Instant, cancel: &AtomicBool) -> Result<Vec<u8>, Error> {
        let value = self.inner.get(key, deadline, cancel)?;
        let mut traffic = self.traffic.lock().unwrap();
        traffic.requests += 1;
        traffic.got_bytes += value.len();
        Ok(value)
    }

    fn multi_get(
        &self,
        keys: &[String],
        deadline: Instant,
        cancel: &AtomicBool,
    ) -> Result<Vec<Vec<u8>>, Error> {
        let values = self.inner.multi_get(keys, deadline, cancel)?;
        let mut traffic = self.traffic.lock().unwrap();
        traffic.requests += keys.len().div_ceil(KEYS_MAX);
        traffic.got_bytes += values.iter().map(Vec::len).sum::<usize>();
        Ok(values)
    }
}

/// Plain addresses of ranks that are numbered host by host.
fn addresses(ranks: u32) -> Vec<EndpointAddress> {
    let options = EndpointOptions {
        interface: Some("127.0.0.1".into()),
        pool_bytes: 1 << 20,
        ..EndpointOptions::default()
    };
    let real = Endpoint::new(options).unwrap();
    let address = |rank| EndpointAddress {
        id: EndpointId(u128::MAX - u128::from(rank)),
        pid: 1 << 20,
        host_name: format!("node-{:05}", rank / PER_HOST),
        boot_id: format!("01234567-89ab-cdef-0123-{:012x}", rank / PER_HOST),
        ..real.address()
    };
    (0..ranks).map(address).collect()
}

/// The traffic between each rank and the store in a whole rendezvous.
fn counted(ranks: u32) -> Vec<StoreTraffic> {
    let (inner, never) = (MemoryStore::new(), AtomicBool::new(false));
    let stores: Vec<_> = (0..ranks).map(|_| CountingStore::of(&inner)).collect();
    let soon = Instant::now() + Duration::from_secs(600);
    let exchange = |rank: u32| Exchange::new(&stores[rank as usize], (rank, ranks), soon, &never);
    let exchanges: Vec<Exchange> = (0..ranks).map(exchange).collect();
    let addresses = addresses(ranks);
    let hello = |rank: u32| {
        let common = Common::new(ranks, Encryption::default(), &GroupTerms::default());
        let domain = Domain {
            cache: Some(0),
            node: Some(rank % 2),
        };
        RankHello::new(common, &addresses[rank as usize], domain)
    };

    for exchange in exchanges.iter().rev() {
        exchange
            .publish(Topic::Address, hello(exchange.rank).to_bytes())
            .unwrap();
    }
    let roster = |hellos: &[Vec<u8>]| Ok(Roster::make(1, &hello(0), vec![], hellos)?.to_bytes());
    exchanges[0].answer_all(Topic::Address, roster).unwrap();
    for exchange in &exchanges[1..] {
        let first = exchange.first(Topic::Address).unwrap();
        hello(exchange.rank)
            .check_first(&first, exchange.rank)
            .unwrap();
        let answer = exchange.read_answer(Topic::Address).unwrap();
        if exchange.rank == ranks - 1 {
            let met = Roster::read(&answer, ranks).unwrap().members();
            assert!(
                met.map(|(address, _)| address)
                    .eq(addresses.iter().cloned())
            );
        }
    }

    let parents = hosts::parents(&addresses);
    let found = |exchange: &Exchange| {
        to_bytes(&HostProbe {
            neighbour: parents[exchange.rank as usize],
            ..HostProbe::default()
        })
    };
    let settled = |values: &[Vec<u8>]| settle_hosts(values, &addresses).unwrap_or_default();
    settle(&exchanges, Topic::Host, found, settled);

    let measured = |exchange: &Exchange| {
        let at = |edge| (exchange.rank % PER_HOST == edge).then_some(50);
        to_bytes(&MeasuredRoundTrips {
            before: at(0),
            after: at(PER_HOST - 1),
        })
    };
    settle(&exchanges, Topic::RoundTrip, measured, settle_round_trips);
    stores.iter().map(CountingStore::traffic).collect()
}

fn settle(
    exchanges: &[Exchange],
    topic: Topic,
    mine: impl Fn(&Exchange) -> Vec<u8>,
    answer: impl Fn(&[Vec<u8>]) -> Vec<u8>,
) {
    for exchange in exchanges {
        exchange.publish(topic, mine(exchange)).unwrap();
    }
    (exchanges[0].answer_all(topic, |values| Ok(answer(values)))).unwrap();
    for exchange in &exchanges[1..] {
        exchange.read_answer(topic).unwrap();
    }
}

#[test]
fn requests_per_rank_do_not_depend_on_size() {
    let [few, many] = [16, 256].map(counted);
    for (rank, traffic) in few.iter().chain(&many).enumerate() {
        let first = rank == 0 || rank == few.len();
        // Three topics: one value and one answer each, which rank 0 sets, and rank 0's first value.
        assert_eq!(traffic.requests, if first { 9 } else { 7 }, "{rank}");
    }
    let grows = |of: fn(&StoreTraffic) -> usize| (of(&many[1]) as f64) / (of(&few[1]) as f64);
    assert!(grows(|traffic| traffic.set_bytes) < 1.1);
    assert!(grows(|traffic| traffic.got_bytes) < 16.0);
}

/// The table of benches/runs/2026-11-23-rendezvous-at-scale: `make count-rendezvous`.
#[test]
#[ignore = "moves gigabytes"]
fn table_of_meetings() {
    println!(
        "| ranks | requests of a rank | of rank 0 | a rank sets, bytes | reads, KiB | rank 0 reads, KiB | \
         the store: requests | takes, MiB | gives, MiB |"
    );
    println!("|--:|--:|--:|--:|--:|--:|--:|--:|--:|");
    for ranks in [16, 256, 1000, 10_000] {
        let all = counted(ranks);
        let (first, last) = (all[0], all[all.len() - 1]);
        let sum = |of: fn(&StoreTraffic) -> usize| all.iter().map(of).sum::<usize>();
        let [kib, mib] =
            [1 << 10, 1 << 20].map(|unit| move |bytes: usize| bytes as f64 / f64::from(unit));
        println!(
            "| {ranks} | {} | {} | {} | {:.1} | {:.1} | {} | {:.2} | {:.1} |",
            last.requests,
            first.requests,
            last.set_bytes,
            kib(last.got_bytes),
            kib(first.got_bytes),
            sum(|traffic| traffic.requests),
            mib(sum(|traffic| traffic.set_bytes)),
            mib(sum(|traffic| traffic.got_bytes)),
        );
    }
}
