//! The job's secret, which distinguishes the processes of a job from strangers.

use std::fmt;

use blake2::digest::Digest;

use weft_call::Error;

/// Shorter secrets can be found by trying.
const SECRET_BYTES_MIN: usize = 16;
const SECRET_BYTES_MAX: usize = 4096;

/// A secret that only the ranks of a job have. It never appears in messages or logs.
#[derive(Clone)]
pub struct Secret(Vec<u8>);

impl Secret {
    /// A secret of 16 to 4,096 bytes that cannot be guessed.
    ///
    /// # Errors
    /// [`Error::Config`] if its length is not allowed.
    pub fn new(bytes: &[u8]) -> Result<Self, Error> {
        if (SECRET_BYTES_MIN..=SECRET_BYTES_MAX).contains(&bytes.len()) {
            return Ok(Self(bytes.into()));
        }
        Err(Error::Config(format!(
            "the job's secret has {} bytes: expected {SECRET_BYTES_MIN} to {SECRET_BYTES_MAX} that cannot be guessed",
            bytes.len()
        )))
    }

    /// A key for one purpose: keys for different purposes reveal nothing about each other.
    pub fn key(&self, purpose: &str) -> [u8; 32] {
        let mut hash = blake2::Blake2s256::new();
        hash.update((purpose.len() as u64).to_le_bytes());
        hash.update(purpose);
        hash.update(&self.0);
        hash.finalize().into()
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(..)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_belongs_to_secret_and_purpose() {
        let [one, two] =
            [b"0123456789abcdef", b"0123456789abcdeF"].map(|s| Secret::new(s).unwrap());
        assert_eq!(one.key("store"), one.clone().key("store"));
        assert_ne!(one.key("store"), one.key("links"));
        assert_ne!(one.key("store"), two.key("store"));
    }

    #[test]
    fn weak_secrets_are_refused_and_never_shown() {
        let error = Secret::new(b"too short").unwrap_err().to_string();
        assert!(
            error.contains("9 bytes") && !error.contains("too short"),
            "{error}"
        );
        let secret = Secret::new(b"0123456789abcdef").unwrap();
        assert_eq!(format!("{secret:?}"), "Secret(..)");
    }
}
