//! The keys of records.
#![forbid(unsafe_code)]

use std::io;

use ring::aead::{AES_256_GCM, Aad, Algorithm, CHACHA20_POLY1305, LessSafeKey, Nonce, UnboundKey};
use ring::hkdf::{HKDF_SHA256, Prk};

use crate::encryption::Cipher;

/// The overhead of a sealed record.
pub(crate) const TAG_BYTES: usize = 16;
/// A key is replaced after this many records, long before a cipher becomes insecure: RFC 8446,
/// section 5.5, has 2^24.5 records of 16 KiB for AES-GCM.
const RECORDS_PER_KEY: u64 = 1 << 24;

/// The key of one direction of a connection, from which the next key is derived. Both ends count
/// records, so they change keys at the same record; earlier keys cannot be derived from a key.
#[derive(Debug)]
pub(crate) struct RecordKey {
    cipher: Cipher,
    secret: Prk,
    key: LessSafeKey,
    /// Records under this key.
    records: u64,
}

impl RecordKey {
    pub(crate) fn new(cipher: Cipher, secret: &[u8; 32]) -> Self {
        Self::of(cipher, Prk::new_less_safe(HKDF_SHA256, secret))
    }

    /// Encrypts the next record, and returns its tag.
    pub(crate) fn seal(&mut self, plain: &mut [u8]) -> io::Result<[u8; TAG_BYTES]> {
        let nonce = self.nonce();
        let sealed = (self.key).seal_in_place_separate_tag(nonce, Aad::empty(), plain);
        let tag = sealed.map_err(|_| io::Error::other("a record cannot be sealed"))?;
        tag.as_ref().try_into().map_err(io::Error::other)
    }

    /// Decrypts the next record, which is followed by its tag; false if it is not that record.
    pub(crate) fn open(&mut self, record: &mut [u8]) -> io::Result<bool> {
        let nonce = self.nonce();
        Ok((self.key)
            .open_in_place(nonce, Aad::empty(), record)
            .is_ok())
    }

    fn of(cipher: Cipher, secret: Prk) -> Self {
        let info = [b"weft record key ".as_slice(), cipher.name().as_bytes()];
        let key = secret.expand(&info, algorithm(cipher));
        let key: UnboundKey = key.expect("as long as a key").into();
        Self {
            cipher,
            secret,
            key: LessSafeKey::new(key),
            records: 0,
        }
    }

    fn nonce(&mut self) -> Nonce {
        if self.records == RECORDS_PER_KEY {
            let next = self.secret.expand(&[b"weft next secret"], HKDF_SHA256);
            *self = Self::of(self.cipher, next.expect("as long as a secret").into());
        }
        let mut nonce = [0; 12];
        nonce[4..].copy_from_slice(&self.records.to_be_bytes());
        self.records += 1;
        Nonce::assume_unique_for_key(nonce)
    }
}

fn algorithm(cipher: Cipher) -> &'static Algorithm {
    match cipher {
        Cipher::AesGcm => &AES_256_GCM,
        Cipher::ChaCha20Poly1305 => &CHACHA20_POLY1305,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair(cipher: Cipher) -> [RecordKey; 2] {
        [(); 2].map(|()| RecordKey::new(cipher, &[7; 32]))
    }

    fn sealed(key: &mut RecordKey, plain: &[u8]) -> Vec<u8> {
        let mut record = plain.to_vec();
        let tag = key.seal(&mut record).unwrap();
        [&record[..], &tag].concat()
    }

    #[test]
    fn both_ends_change_keys_at_the_same_record() {
        for cipher in [Cipher::AesGcm, Cipher::ChaCha20Poly1305] {
            let [mut a, mut b] = pair(cipher);
            let first = sealed(&mut a, b"bytes");
            assert!(b.open(&mut first.clone()).unwrap());
            a.records = RECORDS_PER_KEY - 1;
            b.records = RECORDS_PER_KEY - 1;
            for _ in 0..3 {
                let mut record = sealed(&mut a, b"bytes");
                assert_ne!(record, first, "a nonce begins anew with a new key");
                assert!(b.open(&mut record).unwrap());
                assert_eq!(record[..5], *b"bytes");
            }
            assert_eq!(a.records, 2);
        }
    }

    #[test]
    fn every_cipher_and_secret_has_its_own_key() {
        let [mut aes, _] = pair(Cipher::AesGcm);
        let [mut chacha, _] = pair(Cipher::ChaCha20Poly1305);
        let mut other = RecordKey::new(Cipher::AesGcm, &[8; 32]);
        let record = sealed(&mut aes, b"bytes");
        assert!(!chacha.open(&mut record.clone()).unwrap());
        assert!(!other.open(&mut record.clone()).unwrap());
    }
}
