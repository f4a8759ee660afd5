//! Linear gather: every rank sends its block to the root.

use weft_schedule::Schedule;

use crate::builder::{Builder, block};
use crate::{Algorithm, Request, Requirements};

pub(crate) const ALGORITHM: Algorithm = Algorithm {
    name: "linear",
    collective: "gather",
    summary: "everybody sends its block to the root; one step, any transport",
    requires: Requirements::NONE_ANY_SIZES,
    build,
};

fn build(request: &Request) -> Schedule {
    let mut b = Builder::new(request, request.blocks());
    let staging = b.add_staging(1);
    let root = request.root();
    let own = block(b.rank());
    if request.rank != root {
        b.await_open(root);
        b.deliver(root, b.input(own.clone()), staging, own);
        return b.build();
    }
    for source in b.sources() {
        b.open_to(source);
    }
    b.copy(vec![b.output(own.clone())], b.input(own));
    for source in b.sources() {
        b.accept(source, staging, block(source));
    }
    b.build()
}
