//! The hash of fingerprints, plans and groups.

/// A 64-bit mixing step (the finaliser of SplitMix64).
pub fn mix(hash: u64, value: u64) -> u64 {
    let mut z = hash.rotate_left(5) ^ value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}
