//! Tests of the verifier's errors for schedules that are wrong in one respect each.

use weft_schedule::{Mapped, VerifyOptions, parse, verify};

/// Two ranks exchange their vectors and reduce them.
const EXCHANGE: &str = "\
format 2
collective all-reduce
ranks 2
grid equal 1
receive 1

rank 0
  copy 1.receive(0:0)[0] <- output[0]
  signal 1 #0
  wait 1 #0
  reduce output[0] <- output[0] + receive(1:0)[0] final
rank 1
  copy 0.receive(1:0)[0] <- output[0]
  signal 0 #0
  wait 0 #0
  reduce output[0] <- receive(0:0)[0] + output[0] final
";

/// Two ranks reduce a slice each, in both vectors.
const SLICES: &str = "\
format 2
collective all-reduce
ranks 2
grid equal 2

rank 0
  signal 1 #0
  wait 1 #0
  reduce output[0], 1.output[0] <- output[0] + 1.output[0] final claim 0 by 0, 1
  signal 1 #1
  wait 1 #1
rank 1
  signal 0 #0
  wait 0 #0
  reduce 0.output[0], output[0] <- 0.output[0] + output[0] final
  reduce 0.output[1], output[1] <- 0.output[1] + output[1] final
  signal 0 #1
  wait 0 #1
";

/// Three ranks; what rank 0 puts at rank 2 is announced by rank 1.
const THROUGH_A_THIRD: &str = "\
format 2
collective broadcast from 0
ranks 3
grid equal 1
receive 1

rank 0
  copy 1.receive(0:0)[0], 2.receive(0:0)[0] <- output[0]
  signal 1 #0
rank 1
  wait 0 #0
  copy output[0] <- receive(0:0)[0]
  signal 2 #0
rank 2
  wait 1 #0
  copy output[0] <- receive(0:0)[0]
";

/// Rank 0 reads what rank 1 has staged.
const STAGED: &str = "\
format 2
collective broadcast from 1
ranks 2
grid equal 2
scratch 2

rank 0
  wait 1 #0
  copy output[0..2] <- 1.scratch(0)[0..2]
  signal 1 #0
rank 1
  copy scratch(0)[0..2] <- output[0..2]
  signal 0 #0
  wait 0 #0
";

/// Rank 1 stages only when rank 0 is ready, but ends its tile without knowing whether rank 0 has
/// read.
const READY_BEFORE: &str = "\
format 2
collective broadcast from 1
ranks 2
grid equal 2
scratch 2

rank 0
  signal 1 #0
  wait 1 #0
  copy output[0..2] <- 1.scratch(0)[0..2]
rank 1
  wait 0 #0
  copy scratch(0)[0..2] <- output[0..2]
  signal 0 #0
";

/// Both ranks write the same chunk, and nothing orders the two.
const WRITTEN_BY_BOTH: &str = "\
format 2
collective broadcast from 1
ranks 2
grid equal 1

rank 0
  signal 1 #0
  wait 1 #0
  copy output[0] <- 1.output[0]
  signal 1 #1
  wait 1 #1
rank 1
  signal 0 #0
  wait 0 #0
  copy 0.output[0] <- output[0]
  signal 0 #1
  wait 0 #1
";

const BARRIER: &str = "\
format 2
collective barrier
ranks 2
grid equal 1

rank 0
  signal 1 #0
  wait 1 #0
rank 1
  wait 0 #0
  signal 0 #0
";

/// The verifier's message about `text` with `from` replaced by `to`, each time.
fn refusal(text: &str, mapped: Mapped, changes: &[(&str, &str)]) -> String {
    refusal_with(text, &VerifyOptions::mapped(mapped), changes)
}

fn refusal_with(text: &str, options: &VerifyOptions, changes: &[(&str, &str)]) -> String {
    let mut changed = text.to_owned();
    for (from, to) in changes {
        assert!(changed.contains(from), "{from} is not in {changed}");
        changed = changed.replacen(from, to, 1);
    }
    let schedules = parse(&changed).unwrap();
    let error = verify(&schedules, options).unwrap_err();
    format!("{error}\n")
}

#[test]
fn unchanged_texts_are_right() {
    let all = [
        (EXCHANGE, Mapped::None),
        (STAGED, Mapped::Scratch),
        (THROUGH_A_THIRD, Mapped::Scratch),
        (BARRIER, Mapped::None),
    ];
    for (text, mapped) in all {
        verify(&parse(text).unwrap(), &VerifyOptions::mapped(mapped)).unwrap();
    }
}

#[test]
fn headers() {
    let none = |changes: &[(&str, &str)]| refusal(EXCHANGE, Mapped::None, changes);
    let mut said = none(&[("ranks 2", "ranks 3")]);
    said += &none(&[("grid equal 1", "grid equal 0")]);
    said += &none(&[("grid equal 1", "grid cuts 0/1 1/2 1/3 1/1")]);
    said += &none(&[("grid equal 1", "grid blocks 3")]);
    said += &none(&[("receive 1", "receive 2")]);
    said += &none(&[("rank 1", "rank 0")]);
    said += &none(&[("all-reduce", "broadcast from 2")]);
    said += &none(&[("all-reduce", "all-gather")]);
    said += &none(&[(
        "rank 1\n",
        "format 2\ncollective all-reduce\nranks 2\ngrid equal 2\nreceive 1\nrank 1\n",
    )]);
    insta::assert_snapshot!(said);
}

#[test]
fn access() {
    let none = |changes: &[(&str, &str)]| refusal(EXCHANGE, Mapped::None, changes);
    let mut said = none(&[(
        "1.receive(0:0)[0] <- output[0]",
        "1.receive(0:0)[0] <- output[1]",
    )]);
    said += &none(&[("1.receive(0:0)[0] <-", "1.receive(0:1)[0] <-")]);
    said += &none(&[("1.receive(0:0)[0] <-", "1.receive(0:0@1)[0] <-")]);
    said += &none(&[("1.receive(0:0)[0] <-", "1.receive(1:0)[0] <-")]);
    said += &none(&[("1.receive(0:0)[0] <-", "receive(1:0)[0] <-")]);
    said += &none(&[("1.receive(0:0)[0] <-", "1.output[0] <-")]);
    said += &none(&[("1.receive(0:0)[0] <-", "2.receive(0:0)[0] <-")]);
    said += &none(&[("copy 1.receive(0:0)[0] <-", "reduce 1.receive(0:0)[0] <-")]);
    said += &none(&[(
        "output[0] + receive(1:0)[0]",
        "1.output[0] + receive(1:0)[0]",
    )]);
    said += &none(&[("output[0] + receive(1:0)[0]", "input[0] + receive(1:0)[0]")]);
    said += &none(&[(
        "output[0] + receive(1:0)[0]",
        "output[0]:f32 + receive(1:0)[0]",
    )]);
    said += &none(&[("copy 1.receive(0:0)[0] <-", "copy output[0] <-")]);
    said += &none(&[("<- output[0]\n", "<- output[0] claim 0 by 0, 1\n")]);
    said += &refusal(STAGED, Mapped::None, &[]);
    said += &refusal(
        STAGED,
        Mapped::Scratch,
        &[("1.scratch(0)[0..2]", "1.output[0..2]")],
    );
    insta::assert_snapshot!(said);
}

#[test]
fn signals() {
    let none = |changes: &[(&str, &str)]| refusal(EXCHANGE, Mapped::None, changes);
    let mut said = none(&[("  wait 1 #0\n", "")]);
    said += &none(&[("  signal 1 #0\n", "")]);
    said += &none(&[("signal 1 #0", "signal 1 #1")]);
    said += &none(&[("signal 1 #0", "signal 0 #0")]);
    said += &none(&[("wait 1 #0", "wait 1 #0\n  wait 1 #0")]);
    let many = |step: &str| {
        (0..1 << 16)
            .map(|id| format!("  {step} #{id}\n"))
            .collect::<String>()
    };
    said += &refusal(
        BARRIER,
        Mapped::None,
        &[
            ("  signal 1 #0\n", &many("signal 1")),
            ("  wait 0 #0\n", &many("wait 0")),
        ],
    );
    let crossed = "  signal 1 #0\n  wait 1 #0\n";
    said += &refusal(
        BARRIER,
        Mapped::None,
        &[(crossed, "  wait 1 #0\n  signal 1 #0\n")],
    );
    insta::assert_snapshot!(said);
}

#[test]
fn order() {
    let mut said = refusal(
        EXCHANGE,
        Mapped::Scratch,
        &[(
            "  wait 1 #0\n  reduce output[0] <- output[0] + receive(1:0)[0] final\n",
            "  reduce output[0] <- output[0] + receive(1:0)[0] final\n  wait 1 #0\n",
        )],
    );
    said += &refusal(THROUGH_A_THIRD, Mapped::None, &[]);
    said += &refusal(SLICES, Mapped::All, &[(" claim 0 by 0, 1", "")]);
    said += &refusal(
        STAGED,
        Mapped::Scratch,
        &[("  signal 1 #0\n", ""), ("  wait 0 #0\n", "")],
    );
    said += &refusal(
        STAGED,
        Mapped::All,
        &[
            ("  wait 1 #0\n", ""),
            ("  signal 0 #0\n", ""),
            ("1.scratch(0)", "1.output"),
        ],
    );
    let staged = "output[0..2] <- 1.scratch(0)[0..2]";
    said += &refusal(
        STAGED,
        Mapped::Scratch,
        &[(staged, "output[1] <- 1.scratch(0)[1]")],
    );
    let overwritten = "signal 0 #0\n  copy scratch(0)[0] <- output[0]\n";
    said += &refusal(STAGED, Mapped::Scratch, &[("signal 0 #0\n", overwritten)]);
    said += &refusal(WRITTEN_BY_BOTH, Mapped::All, &[]);
    said += &refusal(
        BARRIER,
        Mapped::None,
        &[("signal 0 #0", ""), ("wait 1 #0", "")],
    );
    insta::assert_snapshot!(said);
}

/// Schedules that are right in one tile, but not when another follows.
#[test]
fn reuse_of_slots() {
    let mapped = VerifyOptions::mapped(Mapped::Scratch);
    let unacknowledged = |options: &VerifyOptions| {
        let changes = [("  signal 1 #0\n", ""), ("  wait 0 #0\n", "")];
        refusal_with(STAGED, options, &changes)
    };
    let mut said = unacknowledged(&mapped);
    // The second operation reuses what the first had.
    said += &unacknowledged(&VerifyOptions {
        tiles: 2,
        ..mapped.clone()
    });
    said += &unacknowledged(&VerifyOptions {
        slots: 1,
        ..mapped.clone()
    });
    // Nothing is reused, but it must be possible.
    said += &unacknowledged(&VerifyOptions {
        slots: 6,
        ..mapped.clone()
    });
    said += &unacknowledged(&mapped.clone().one_tile());
    // Another operation in the same slots would not wait for rank 0.
    said += &refusal_with(READY_BEFORE, &mapped, &[]);
    // No rank reads the data that rank 0 puts.
    said += &refusal_with(
        STAGED,
        &mapped,
        &[
            ("scratch 2\n", "scratch 2\nreceive 1\n"),
            (
                "  signal 1 #0\n",
                "  signal 1 #0\n  copy 1.receive(0:0)[1] <- output[1]\n",
            ),
        ],
    );
    for (slots, tiles) in [(0, 1), (1, 0), (2, u32::MAX)] {
        let options = VerifyOptions {
            slots,
            tiles,
            ..mapped.clone()
        };
        said += &refusal_with(STAGED, &options, &[]);
    }
    insta::assert_snapshot!(said);
}

#[test]
fn results() {
    let none = |changes: &[(&str, &str)]| refusal(EXCHANGE, Mapped::None, changes);
    let mut said = none(&[("output[0] + receive(1:0)[0]", "output[0] + output[0]")]);
    said += &none(&[("receive(1:0)[0] final", "receive(1:0)[0]")]);
    said += &none(&[("output[0] + receive(1:0)[0]", "receive(1:0)[0]")]);
    said += &none(&[("output[0] + receive(1:0)[0] final", "receive(1:0)[0]")]);
    said += &none(&[("output[0] + receive(1:0)[0]", "receive(1:0)[0] + output[0]")]);
    said += &none(&[(
        "receive(1:0)[0] final\n",
        "receive(1:0)[0] final\n  reduce output[0] <- output[0] final\n",
    )]);
    said += &none(&[
        (
            "  reduce output[0] <- output[0] + receive(1:0)[0] final\n",
            "",
        ),
        (
            "  reduce output[0] <- receive(0:0)[0] + output[0] final\n",
            "",
        ),
    ]);
    said += &refusal(
        STAGED,
        Mapped::Scratch,
        &[(
            "  copy output[0..2] <- 1.scratch(0)[0..2]",
            "  copy output[0] <- 1.scratch(0)[0]",
        )],
    );
    said += &refusal(
        "format 2\ncollective all-gather\nranks 2\ngrid equal 2\n\
         rank 0\n  copy output[0] <- input[0]\n  copy output[1] <- input[0]\nrank 1\n",
        Mapped::None,
        &[("output[1] <- input[0]", "output[1] <- input[1]")],
    );
    said += &refusal(
        "format 2\ncollective all-to-all\nranks 2\ngrid blocks 2\nrank 0\n  copy output[0..2] <- input[0..2]\nrank 1\n",
        Mapped::None,
        &[],
    );
    insta::assert_snapshot!(said);
}

#[test]
fn claims() {
    let slices = |changes: &[(&str, &str)]| refusal(SLICES, Mapped::All, changes);
    let second = "reduce 0.output[0], output[0] <- 0.output[0] + output[0] final";
    let claimed = "reduce 0.output[0], output[0] <- 0.output[0] + output[0] final claim 0 by 0, 1";
    let reversed = "reduce output[0], 0.output[0] <- 0.output[0] + output[0] final claim 0 by 0, 1";
    let without = "  reduce 0.output[0], output[0] <- 0.output[0] + output[0] final\n";
    let mut said = slices(&[]);
    said += &slices(&[(second, reversed)]);
    said += &slices(&[(second, &format!("{claimed}\n  {claimed}"))]);
    said += &slices(&[(without, ""), ("by 0, 1", "by 1, 0")]);
    said += &slices(&[(without, ""), ("by 0, 1", "by 0, 0")]);
    said += &slices(&[(without, ""), ("by 0, 1", "by 1")]);
    // The helper does not wait for the owner before it executes the step for it.
    said += &slices(&[
        (second, claimed),
        (
            "  wait 0 #0\n  reduce 0.output[0], output[0] <- 0.output[0] + output[0] final claim 0 by 0, 1\n",
            "  reduce 0.output[0], output[0] <- 0.output[0] + output[0] final claim 0 by 0, 1\n  wait 0 #0\n",
        ),
    ]);
    insta::assert_snapshot!(said);
}
