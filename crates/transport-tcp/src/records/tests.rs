use proptest::prelude::*;

use super::*;

const CIPHERS: [Cipher; 2] = [Cipher::AesGcm, Cipher::ChaCha20Poly1305];
/// No sent byte has this value.
const UNTOUCHED: u8 = 255;

fn pair(cipher: Cipher) -> (Sealing, Opening) {
    let key = || RecordKey::new(cipher, &[7; 32]);
    (Sealing::new(key()), Opening::new(key()))
}

/// Records of these bytes each, in encrypted form.
fn records(sealing: &mut Sealing, plain: &[&[u8]]) -> Vec<Vec<u8>> {
    let sealed = plain.iter().map(|bytes| {
        let mut record = Vec::new();
        let sent = sealing.send(&[IoSlice::new(bytes)], |sealed| {
            record.extend(sealed);
            Ok(sealed.len())
        });
        assert_eq!(sent.unwrap(), bytes.len());
        record
    });
    sealed.collect()
}

/// The bytes that are delivered, or written, of the arriving ones, until no more are, and the
/// result.
fn opened(opening: &mut Opening, mut received: &[u8]) -> (Vec<u8>, io::Result<()>) {
    let mut given = Vec::new();
    loop {
        let mut place = [UNTOUCHED; 1000];
        match opening.read(&mut [IoSliceMut::new(&mut place)], &mut received) {
            Ok(0) => return (given, Ok(())),
            Ok(bytes) => given.extend(&place[..bytes]),
            Err(error) if is_momentary(&error) => {}
            Err(error) => {
                given.extend(place.iter().take_while(|byte| **byte != UNTOUCHED));
                return (given, Err(error));
            }
        }
    }
}

/// The arriving bytes must be rejected, after the ones before them are delivered.
fn check_refused(cipher: Cipher, received: &[u8], before: &[u8]) {
    let (_, mut opening) = pair(cipher);
    let (given, end) = opened(&mut opening, received);
    assert_eq!(given, before);
    assert_eq!(end.unwrap_err().kind(), io::ErrorKind::InvalidData);
    // The failure is permanent.
    let (mut sealing, _) = pair(cipher);
    let good = records(&mut sealing, &[b"good"]).concat();
    assert!(opened(&mut opening, &good).1.is_err());
}

#[test]
fn a_changed_bit_is_detected_anywhere() {
    for cipher in CIPHERS {
        let (mut sealing, _) = pair(cipher);
        let [first, second, third] = &records(&mut sealing, &[b"first", b"second", b"third"])[..]
        else {
            panic!("three records");
        };
        for bit in 0..second.len() * 8 {
            let mut changed = second.clone();
            changed[bit / 8] ^= 1 << (bit % 8);
            let received = [first, &changed, third].map(|record| record.as_slice());
            // A record that claims to be longer is awaited.
            let (_, mut opening) = pair(cipher);
            let (given, end) = opened(&mut opening, &received.concat());
            assert_eq!(given, b"first");
            assert!(end.is_err() || bit / 8 < HEADER_BYTES, "bit {bit}");
            if bit / 8 >= HEADER_BYTES {
                check_refused(cipher, &received.concat(), b"first");
            }
        }
    }
}

#[test]
fn missing_repeated_or_moved_records_are_refused() {
    for cipher in CIPHERS {
        let (mut sealing, _) = pair(cipher);
        let records = records(&mut sealing, &[b"0", b"1", b"2"]);
        let check = |order: &[usize], before: &[u8]| {
            let received: Vec<u8> = order.iter().flat_map(|n| records[*n].clone()).collect();
            check_refused(cipher, &received, before);
        };
        check(&[1, 2], b"");
        check(&[0, 2], b"0");
        check(&[0, 0], b"0");
        check(&[0, 2, 1], b"0");
        check(&[0, 1, 0], b"01");
    }
}

#[test]
fn records_of_another_connection_are_refused() {
    let caller = Records::new(Cipher::AesGcm, &[1; 32], &[2; 32]);
    let listener = Records::new(Cipher::AesGcm, &[2; 32], &[1; 32]);
    let mut sent = Vec::new();
    let mut send = |bytes: &[u8]| {
        sent.extend(bytes);
        Ok(bytes.len())
    };
    caller.send(&[IoSlice::new(b"hello")], &mut send).unwrap();
    let mut plain = [0; 5];
    listener
        .reader(sent.as_slice())
        .read_exact(&mut plain)
        .unwrap();
    assert_eq!(&plain, b"hello");
    let reflected = caller.reader(sent.as_slice()).read(&mut plain);
    assert_eq!(reflected.unwrap_err().kind(), io::ErrorKind::InvalidData);
}

#[test]
fn a_truncated_record_is_never_delivered() {
    let (mut sealing, _) = pair(Cipher::AesGcm);
    let record = records(&mut sealing, &[b"bytes"]).concat();
    for end in 0..record.len() {
        let (_, mut opening) = pair(Cipher::AesGcm);
        let (given, ended) = opened(&mut opening, &record[..end]);
        assert!(given.is_empty() && ended.is_ok());
        assert!(!opening.has_input());
    }
}

#[test]
fn impossible_lengths_are_refused_before_anything_follows() {
    for length in [0, PLAIN_BYTES_MAX as u16 + 1, u16::MAX] {
        check_refused(Cipher::AesGcm, &length.to_le_bytes(), b"");
    }
}

#[test]
fn accepted_bytes_are_sent_before_later_ones() {
    let (mut sealing, mut opening) = pair(Cipher::AesGcm);
    let blocked = || Err(io::ErrorKind::WouldBlock.into());
    let taken = sealing.send(&[IoSlice::new(b"first")], |_| blocked());
    assert_eq!(taken.unwrap(), 5);
    for more in [&b"second"[..], b""] {
        let again = sealing.send(&[IoSlice::new(more)], |_| blocked());
        assert_eq!(again.unwrap_err().kind(), io::ErrorKind::WouldBlock);
    }
    let rest = records(&mut sealing, &[b"", b"second"]).concat();
    assert_eq!(opened(&mut opening, &rest).0, b"firstsecond");
}

proptest! {
    #[test]
    fn sealed_bytes_are_opened_unchanged(
        cipher in prop::sample::select(&CIPHERS),
        pieces in prop::collection::vec((any::<u8>(), prop_oneof![0..100_usize, 0..90_000_usize]), 1..6),
        portions in prop::collection::vec(1..70_000_usize, 1..5),
        places in prop::collection::vec(1..70_000_usize, 1..5),
    ) {
        let pieces: Vec<Vec<u8>> =
            pieces.into_iter().map(|(byte, bytes)| vec![byte; bytes]).collect();
        let sent = pieces.concat();
        let (mut sealing, mut opening) = pair(cipher);
        let mut wire = Vec::new();
        let mut portions = portions.into_iter().cycle();
        let mut taken = 0;
        while taken < sent.len() {
            let slices = [IoSlice::new(&sent[taken..])];
            taken += sealing.send(&slices, |bytes| {
                let bytes = &bytes[..bytes.len().min(portions.next().unwrap_or(1))];
                wire.extend(bytes);
                Ok(bytes.len())
            }).unwrap();
        }
        let mut wire = wire.as_slice();
        let mut received: Vec<u8> = Vec::new();
        for bytes in places.into_iter().cycle() {
            let mut place = vec![0; bytes];
            let (first, second) = place.split_at_mut(bytes / 3);
            let mut places = [IoSliceMut::new(first), IoSliceMut::new(second)];
            match opening.read(&mut places, &mut wire) {
                Ok(0) => break,
                Ok(given) => received.extend(&place[..given]),
                Err(error) => prop_assert!(is_momentary(&error)),
            }
        }
        prop_assert_eq!(received.len(), sent.len());
        prop_assert!(received == sent);
    }
}
