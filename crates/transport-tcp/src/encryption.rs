//! The setting for encryption of links, and the choice of their cipher.
#![forbid(unsafe_code)]

use std::fmt;

use weft_transport::LinkError;

/// An authenticated cipher.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Cipher {
    /// AES-256-GCM. The faster one where the processor has instructions for it.
    AesGcm,
    /// ChaCha20-Poly1305.
    ChaCha20Poly1305,
}

/// The ciphers, the preferred one first.
const CIPHERS: [Cipher; 2] = [Cipher::AesGcm, Cipher::ChaCha20Poly1305];

impl Cipher {
    /// Its name, as in `WEFT_ENCRYPT`.
    pub fn name(self) -> &'static str {
        match self {
            Cipher::AesGcm => "aes-gcm",
            Cipher::ChaCha20Poly1305 => "chacha20-poly1305",
        }
    }

    /// All of them, with the one that is faster on this machine first.
    pub fn by_speed() -> [Cipher; 2] {
        let mut ciphers = CIPHERS;
        if !has_aes() {
            ciphers.reverse();
        }
        ciphers
    }

    /// Its number in the handshake, and its bit in an offer.
    pub(crate) fn code(self) -> u8 {
        match self {
            Cipher::AesGcm => 1,
            Cipher::ChaCha20Poly1305 => 2,
        }
    }

    pub(crate) fn of_code(code: u8) -> Option<Cipher> {
        CIPHERS.into_iter().find(|cipher| cipher.code() == code)
    }
}

/// The requested encryption of an endpoint's links. The same on all ranks.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Encryption {
    /// None: frames are sent as plain text after the handshake.
    #[default]
    Off,
    /// Each link uses the fastest cipher that both machines have.
    Best,
    /// All links use this cipher.
    Only(Cipher),
}

impl Encryption {
    /// Parses a setting's value: `0`, `1` for the best, or the name of a cipher.
    pub fn parse(name: &str) -> Option<Encryption> {
        let all = [Encryption::Off, Encryption::Best].into_iter();
        let mut all = all.chain(CIPHERS.map(Encryption::Only));
        all.find(|encryption| encryption.to_string() == name)
    }

    /// The ciphers that an endpoint of this machine offers.
    pub(crate) fn offer(self) -> CipherOffer {
        let offered = |cipher: &Cipher| match self {
            Encryption::Off => false,
            Encryption::Best => *cipher == Cipher::ChaCha20Poly1305 || has_aes(),
            Encryption::Only(only) => *cipher == only,
        };
        let offered = CIPHERS.into_iter().filter(offered);
        CipherOffer(offered.fold(0, |bits, cipher| bits | cipher.code()))
    }
}

impl fmt::Display for Encryption {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Encryption::Off => "0",
            Encryption::Best => "1",
            Encryption::Only(cipher) => cipher.name(),
        })
    }
}

/// Ciphers that an endpoint offers, as bits; without any, its links are not encrypted.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct CipherOffer(u8);

impl CipherOffer {
    pub(crate) fn to_byte(self) -> u8 {
        self.0
    }

    /// None if the byte names unknown ciphers.
    pub(crate) fn from_byte(byte: u8) -> Option<CipherOffer> {
        (byte >> CIPHERS.len() == 0).then_some(CipherOffer(byte))
    }

    /// The cipher of a link to an endpoint that offers `theirs`: both ends compute the same. None
    /// if neither encrypts.
    pub(crate) fn common(self, theirs: CipherOffer) -> Result<Option<Cipher>, LinkError> {
        if (self.0, theirs.0) == (0, 0) {
            return Ok(None);
        }
        let both = CipherOffer(self.0 & theirs.0);
        let mut common = CIPHERS.into_iter().filter(|cipher| both.has(*cipher));
        common.next().map(Some).ok_or_else(|| {
            LinkError::Refused(format!(
                "the peer has encryption {theirs}, this endpoint {self}: WEFT_ENCRYPT must be the same everywhere"
            ))
        })
    }

    fn has(self, cipher: Cipher) -> bool {
        self.0 & cipher.code() != 0
    }
}

impl fmt::Display for CipherOffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = CIPHERS.into_iter().filter(|cipher| self.has(*cipher));
        let names: Vec<&str> = names.map(Cipher::name).collect();
        match names.as_slice() {
            [] => f.write_str("off"),
            names => f.write_str(&names.join(" or ")),
        }
    }
}

/// Whether the processor has instructions that make AES-GCM the faster cipher.
fn has_aes() -> bool {
    #[cfg(target_arch = "x86_64")]
    return std::arch::is_x86_feature_detected!("aes")
        && std::arch::is_x86_feature_detected!("pclmulqdq");
    #[cfg(target_arch = "aarch64")]
    return std::arch::is_aarch64_feature_detected!("aes")
        && std::arch::is_aarch64_feature_detected!("pmull");
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    return false;
}

#[cfg(test)]
mod tests {
    use super::*;

    const AES: Encryption = Encryption::Only(Cipher::AesGcm);
    const CHACHA: Encryption = Encryption::Only(Cipher::ChaCha20Poly1305);

    #[test]
    fn settings_are_parsed_by_name() {
        for encryption in [Encryption::Off, Encryption::Best, AES, CHACHA] {
            assert_eq!(Encryption::parse(&encryption.to_string()), Some(encryption));
        }
        assert_eq!(Encryption::parse("rot13"), None);
    }

    #[test]
    fn both_ends_choose_the_same_cipher() {
        let with_aes = CipherOffer(3);
        let without = CipherOffer(2);
        let check = |a: CipherOffer, b: CipherOffer, cipher| {
            assert_eq!(a.common(b).unwrap(), cipher);
            assert_eq!(b.common(a).unwrap(), cipher);
        };
        check(with_aes, with_aes, Some(Cipher::AesGcm));
        check(with_aes, without, Some(Cipher::ChaCha20Poly1305));
        check(CHACHA.offer(), with_aes, Some(Cipher::ChaCha20Poly1305));
        check(Encryption::Off.offer(), Encryption::Off.offer(), None);
        assert!(Encryption::Best.offer().has(Cipher::ChaCha20Poly1305));
    }

    #[test]
    fn forged_offers_cannot_weaken_encryption() {
        let check = |a: Encryption, b: Encryption| {
            let refused = a.offer().common(b.offer()).unwrap_err().to_string();
            let [a, b] = [a, b].map(|encryption| encryption.offer().to_string());
            assert!(refused.contains(&a) && refused.contains(&b), "{refused}");
        };
        check(AES, CHACHA);
        for encrypted in [AES, CHACHA, Encryption::Best] {
            check(encrypted, Encryption::Off);
            check(Encryption::Off, encrypted);
        }
    }

    #[test]
    fn unknown_ciphers_are_no_offer() {
        assert_eq!(CipherOffer::from_byte(3), Some(CipherOffer(3)));
        assert_eq!(CipherOffer::from_byte(4), None);
    }
}
