//! The verifier on right schedules and on schedules that are wrong in one chosen way.

mod samples;

use weft_schedule::verify;

#[test]
fn samples_are_right() {
    for ranks in [2, 3, 4, 5, 8, 33] {
        for sample in samples::all(ranks) {
            if let Err(error) = verify(&sample.schedules, &sample.options) {
                panic!("{} at {ranks} ranks: {error}", sample.name);
            }
        }
    }
}
