//! Floors of a connection: the round trip of a byte over TCP, and the rate of one stream.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use crate::TimedOperation;

/// The bytes of one write or read, which stay in the near caches.
const PIECE: usize = 256 << 10;

/// One byte to the other rank and one back.
pub struct TcpRoundTrip {
    /// `None` on ranks that do not take part.
    peer: Option<TcpStream>,
    first: bool,
}

impl TcpRoundTrip {
    /// A round trip over a separate connection. `first`: this rank sends first. `polling`: it polls
    /// for the byte instead of sleeping in the system call.
    ///
    /// # Errors
    ///
    /// If the socket rejects its options.
    pub fn new(peer: Option<TcpStream>, first: bool, polling: bool) -> io::Result<Self> {
        if let Some(stream) = &peer {
            stream.set_nodelay(true)?;
            stream.set_nonblocking(polling)?;
        }
        Ok(Self { peer, first })
    }
}

impl TimedOperation for TcpRoundTrip {
    fn call(&mut self) -> Result<(), String> {
        let Some(stream) = &mut self.peer else {
            return Ok(());
        };
        let outcome = match self.first {
            true => stream.write_all(&[0]).and_then(|()| awaited(stream)),
            false => awaited(stream).and_then(|()| stream.write_all(&[0])),
        };
        outcome.map_err(|error| error.to_string())
    }
}

/// Receives a byte.
fn awaited(stream: &mut TcpStream) -> io::Result<()> {
    loop {
        match stream.read(&mut [0]) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            other => return other.map(drop),
        }
    }
}

/// Bytes over one connection, in one direction, counted where they arrive.
///
/// The first bytes do not count: an idle line transmits a burst faster, and an idle connection
/// starts slowly.
pub struct OneStream {
    peer: Option<TcpStream>,
    sends: bool,
    uncounted: usize,
    counted: usize,
    piece: Vec<u8>,
    took: Duration,
}

impl OneStream {
    /// A stream of `uncounted` bytes followed by `counted` ones. `sends`: this rank sends, and the
    /// other one receives.
    ///
    /// # Errors
    ///
    /// If the socket rejects its options.
    pub fn new(
        peer: Option<TcpStream>,
        sends: bool,
        uncounted: usize,
        counted: usize,
    ) -> io::Result<Self> {
        if let Some(stream) = &peer {
            stream.set_nonblocking(false)?;
        }
        Ok(Self {
            peer,
            sends,
            uncounted,
            counted,
            piece: vec![0; PIECE],
            took: Duration::ZERO,
        })
    }

    fn pass(&mut self, bytes: usize) -> io::Result<()> {
        let Some(stream) = &mut self.peer else {
            return Ok(());
        };
        let mut done = 0;
        while done < bytes {
            let piece = PIECE.min(bytes - done);
            match self.sends {
                true => stream.write_all(&self.piece[..piece])?,
                false => stream.read_exact(&mut self.piece[..piece])?,
            }
            done += piece;
        }
        Ok(())
    }
}

impl TimedOperation for OneStream {
    fn call(&mut self) -> Result<(), String> {
        self.pass(self.uncounted)
            .map_err(|error| error.to_string())?;
        let begin = Instant::now();
        self.pass(self.counted).map_err(|error| error.to_string())?;
        self.took = begin.elapsed();
        Ok(())
    }

    /// Only the receiver's time counts, as sent bytes may not have arrived yet.
    fn counted(&self, _whole: Duration) -> Duration {
        match self.sends {
            true => Duration::ZERO,
            false => self.took,
        }
    }
}
