//! Models of the link table: two endpoints that connect at the same time keep the same single link.

use loom::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use loom::sync::{Arc, Mutex};
use loom::thread;
use std::time::Instant;

use crate::model;
use crate::protocols::places::{Closable, DialTurn, LinkPlaces};

/// One end of a connection, by the connection's number.
#[derive(Clone)]
struct ModelLink {
    number: u64,
    closed: Arc<AtomicBool>,
}

impl Closable for ModelLink {
    fn close(&self) {
        self.closed.store(true, Ordering::Release);
    }
}

/// Two endpoints: each has a table of links to the other one.
struct ModelPair {
    tables: [LinkPlaces<(), ModelLink>; 2],
    /// Connections made so far.
    made: AtomicU64,
    /// The links that were announced, by endpoint.
    announced: [Arc<Mutex<Vec<u64>>>; 2],
    now: Instant,
    /// Whether only the endpoint with the smaller number has precedence, or both have.
    ordered: bool,
}

impl ModelPair {
    fn new(ordered: bool) -> Arc<ModelPair> {
        let pair = ModelPair {
            tables: [LinkPlaces::new(), LinkPlaces::new()],
            made: AtomicU64::new(0),
            announced: Default::default(),
            now: Instant::now(),
            ordered,
        };
        for (table, announced) in pair.tables.iter().zip(&pair.announced) {
            let announced = announced.clone();
            table.on_link(Box::new(move |link: ModelLink| {
                announced.lock().unwrap().push(link.number);
            }));
        }
        Arc::new(pair)
    }

    /// An attempt to connect: the other end's listener accepts it, or refuses it in favour of its
    /// own.
    fn connect(&self, from: usize) -> Option<ModelLink> {
        let to = 1 - from;
        let precedes = !self.ordered || from < to;
        if !self.tables[to].accept((), precedes, self.now) {
            return None;
        }
        let end = || ModelLink {
            number: 0,
            closed: Arc::new(AtomicBool::new(false)),
        };
        let number = self.made.fetch_add(1, Ordering::Relaxed);
        let [near, far] = [end(), end()].map(|end| ModelLink { number, ..end });
        self.tables[to].install((), far);
        Some(near)
    }

    /// The runtime's loop around its table. `None` if the endpoint is closed.
    fn link(&self, me: usize) -> Option<ModelLink> {
        let table = &self.tables[me];
        while !table.is_closed() {
            match table.turn((), |_| false) {
                DialTurn::Take(link) => return Some(link),
                DialTurn::Wait => {}
                DialTurn::Dial => match self.connect(me) {
                    Some(link) => return table.install((), link),
                    None => {
                        table.end_dial(());
                        table.wait_for_peer((), || false);
                    }
                },
            }
        }
        None
    }

    fn check(&self) {
        let links = [0, 1].map(|me| self.tables[me].ready(()).expect("a link"));
        assert_eq!(links[0].number, links[1].number, "each end keeps another");
        for (link, announced) in links.iter().zip(&self.announced) {
            assert!(!link.closed.load(Ordering::Acquire), "the link is closed");
            assert_eq!(*announced.lock().unwrap(), [link.number]);
        }
    }
}

fn both_dial(ordered: bool) {
    model(3, move || {
        let pair = ModelPair::new(ordered);
        let other = {
            let pair = pair.clone();
            thread::spawn(move || pair.link(1).unwrap())
        };
        pair.link(0).unwrap();
        other.join().unwrap();
        pair.check();
    });
}

#[test]
fn loom_both_ends_dial_and_keep_the_same_link() {
    both_dial(true);
}

/// A check of the model: if both attempts may win, each end keeps another link.
#[test]
#[should_panic(expected = "each end keeps another")]
fn loom_finds_attempts_without_an_order() {
    both_dial(false);
}

#[test]
fn loom_threads_of_an_endpoint_share_one_link() {
    model(3, || {
        let pair = ModelPair::new(true);
        let other = {
            let pair = pair.clone();
            thread::spawn(move || pair.link(0).unwrap().number)
        };
        assert_eq!(pair.link(0).unwrap().number, other.join().unwrap());
        pair.check();
        assert_eq!(pair.made.load(Ordering::Relaxed), 1);
    });
}

/// A thread that waits for a link when its endpoint closes returns, and no link stays open.
#[test]
fn loom_closed_endpoint_has_no_open_link() {
    model(3, || {
        let pair = ModelPair::new(true);
        let other = {
            let pair = pair.clone();
            thread::spawn(move || pair.link(0))
        };
        pair.tables[0].close();
        let link = other.join().unwrap();
        assert!(link.is_none_or(|link| link.closed.load(Ordering::Acquire)));
        assert!(pair.tables[0].links().is_empty());
    });
}
