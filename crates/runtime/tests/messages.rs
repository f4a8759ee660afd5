//! Messages from one rank to another.

mod ranks;

use ranks::{Ranks, Setup};
use weft_runtime::TransportChoice;

#[test]
fn messages_of_all_sizes_find_their_receivers() {
    let setups = [
        TransportChoice::Loopback.into(),
        TransportChoice::Shm.into(),
        TransportChoice::Tcp.into(),
        Setup::on_hosts(&[0, 0, 1]),
    ];
    for setup in setups {
        Ranks::run(setup, 3, |group| {
            let (rank, size) = (group.rank(), group.size());
            let (to, from) = ((rank + 1) % size, (rank + size - 1) % size);
            for (tag, bytes) in [0_usize, 1, 1000, 16_384, 16_385, 1_000_001]
                .into_iter()
                .enumerate()
            {
                let sent = vec![rank as u8 + tag as u8; bytes];
                let mut received = vec![255; bytes];
                // SAFETY: both buffers live until both waits are over.
                let receive = unsafe {
                    group.receive(
                        (tag % 2 == 0).then_some(from),
                        tag as u64,
                        received.as_mut_ptr(),
                        bytes as u64,
                        None,
                        tag % 2 == 0,
                    )
                };
                let receive = receive.unwrap();
                // SAFETY: as above.
                let send = unsafe {
                    group.send(
                        to,
                        tag as u64,
                        sent.as_ptr(),
                        bytes as u64,
                        None,
                        tag % 3 == 0,
                    )
                };
                send.unwrap().wait(None, &mut || false).unwrap();
                receive.wait(None, &mut || false).unwrap();
                assert_eq!(receive.source(), Some(from));
                assert!(received.iter().all(|byte| *byte == from as u8 + tag as u8));
            }
        });
    }
}
