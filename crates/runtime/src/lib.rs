//! weft-runtime.

mod endpoint;
mod error;
mod pool;
mod rendezvous;
mod store;

pub use endpoint::{Address, Endpoint, EndpointOptions, TransportChoice};
pub use error::Error;
pub use pool::{Pool, PoolRange};
pub use rendezvous::{Meeting, Member, meet};
pub use store::{MemoryStore, PrefixStore, Store};
