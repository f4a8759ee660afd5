//! Tests of the text form: appearance, round trip, and a parser that never panics.

mod samples;

use proptest::prelude::*;
use weft_schedule::{
    Buffer, Claim, Collective, Encoding, Fraction, Grid, Schedule, Slice, Step, parse, print,
};

#[test]
fn samples_as_text() {
    let mut samples = samples::all(3);
    samples.retain(|sample| sample.options.hosts.is_none());
    for sample in samples {
        insta::assert_snapshot!(sample.name.replace(' ', "_"), print(&sample.schedules));
    }
}

#[test]
fn samples_are_read_back() {
    for ranks in [2, 3, 5] {
        for sample in samples::all(ranks) {
            assert_eq!(
                parse(&print(&sample.schedules)).as_ref(),
                Ok(&sample.schedules)
            );
        }
    }
}

#[test]
fn one_schedule_is_read_back() {
    let schedule = samples::barrier(3).remove(1);
    assert_eq!(parse(&schedule.to_string()), Ok(vec![schedule]));
}

#[test]
fn messages() {
    let header = "format 2\ncollective barrier\nranks 2\ngrid equal 1\nrank 0\n";
    let texts = [
        "",
        "ranks 2",
        "format 2\ncollective all-reduce from 1",
        "format 2\ncollective reduce 1",
        "format 2\ncollective sum",
        "collective barrier\nranks 1\ngrid equal 1\nrank 0\n",
        "format 3\ncollective barrier",
        "format two",
        "format 2\ncollective barrier",
        "format 2\ncollective barrier\nranks two",
        "format 2\ncollective barrier\nranks 99999999999",
        "format 2\ncollective barrier\nranks 2\ngrid square 3",
        "format 2\ncollective barrier\nranks 2\ngrid cuts",
        "format 2\ncollective barrier\nranks 2\ngrid cuts 0/1 1",
        &format!("{header}  signal 1"),
        &format!("{header}  signal 1 # 0"),
        &format!("{header}  send 1 #0"),
        &format!("{header}  copy output[0] <- output[1], output[2]"),
        &format!("{header}  copy output[0] <- stack[1]"),
        &format!("{header}  copy output[4294967295] <- input[0]"),
        &format!("{header}  copy output[0]:f31 <- input[0]"),
        &format!("{header}  copy scratch[0] <- input[0]"),
        &format!("{header}  copy receive(0)[0] <- input[0]"),
        &format!("{header}  reduce output[0] <- input[0] last"),
        &format!("{header}  copy output[0] <- input[0] claim 0 of 1"),
        &format!("{header}  wait 0 #0 \u{e9}\u{1}"),
    ];
    let said: String = texts
        .iter()
        .map(|text| format!("{}\n", said(text)))
        .collect();
    insta::assert_snapshot!(said);
}

fn said(text: &str) -> String {
    match parse(text) {
        Ok(schedules) => format!("{} schedules", schedules.len()),
        Err(error) => error.to_string(),
    }
}

#[test]
fn comments_and_blank_lines() {
    let text = "# a barrier\n\nformat 2\ncollective barrier # nothing moves\n ranks 1\n\tgrid equal 1\n#\n\nrank 0 #last";
    assert_eq!(parse(text), Ok(samples::barrier(1)));
}

prop_compose! {
    fn buffer()(kind in 0..4, from: u32, entry: u32, base: u32) -> Buffer {
        match kind {
            0 => Buffer::Input,
            1 => Buffer::Output,
            2 => Buffer::Scratch { entry, base },
            _ => Buffer::Receive { from, entry, base },
        }
    }
}

prop_compose! {
    fn slice()(
        rank in 0..3_u32,
        buffer in buffer(),
        start: u32,
        end: u32,
        encoding in prop::sample::select(&Encoding::ALL[..]),
    ) -> Slice {
        Slice { rank, buffer, chunks: start..end, encoding }
    }
}

prop_compose! {
    fn claim()(id: u32, by in prop::collection::vec(any::<u32>(), 1..4)) -> Claim {
        Claim { id, by }
    }
}

fn slices() -> impl Strategy<Value = Vec<Slice>> {
    prop::collection::vec(slice(), 1..4)
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        (slices(), slice(), prop::option::of(claim())).prop_map(|(dsts, src, claim)| Step::Copy {
            dsts,
            src,
            claim
        }),
        (slices(), slices(), any::<bool>(), prop::option::of(claim())).prop_map(
            |(dsts, srcs, is_final, claim)| Step::Reduce {
                dsts,
                srcs,
                is_final,
                claim
            }
        ),
        any::<(u32, u32)>().prop_map(|(to, id)| Step::Signal { to, id }),
        any::<(u32, u32)>().prop_map(|(from, id)| Step::Wait { from, id }),
    ]
}

fn collective() -> impl Strategy<Value = Collective> {
    (0..9, any::<u32>()).prop_map(|(kind, root)| match kind {
        0 => Collective::AllReduce,
        1 => Collective::Reduce { root },
        2 => Collective::Broadcast { root },
        3 => Collective::AllGather,
        4 => Collective::ReduceScatter,
        5 => Collective::AllToAll,
        6 => Collective::Gather { root },
        7 => Collective::Scatter { root },
        _ => Collective::Barrier,
    })
}

fn grid() -> impl Strategy<Value = Grid> {
    let fraction = any::<(u32, u32)>().prop_map(|(numerator, denominator)| Fraction {
        numerator,
        denominator,
    });
    prop_oneof![
        any::<u32>().prop_map(Grid::Equal),
        any::<u32>().prop_map(Grid::Blocks),
        prop::collection::vec(fraction, 1..4).prop_map(Grid::Cuts),
    ]
}

prop_compose! {
    fn schedule()(
        collective in collective(),
        ranks: u32,
        rank in 0..3_u32,
        grid in grid(),
        scratch: Vec<u32>,
        receive: Vec<u32>,
        steps in prop::collection::vec(step(), 0..6),
    ) -> Schedule {
        Schedule { collective, ranks, rank, grid, scratch, receive, steps }
    }
}

/// Words and marks of the form, in any order.
fn soup() -> impl Strategy<Value = String> {
    let pieces = [
        "collective",
        "all-reduce",
        "reduce",
        "to",
        "ranks",
        "grid",
        "equal",
        "cuts",
        "1/2",
        "scratch",
        "receive",
        "rank",
        "copy",
        "output",
        "input",
        "(",
        ")",
        "[",
        "]",
        "..",
        ".",
        ":",
        "@",
        "#",
        "#0",
        "+",
        "<-",
        ",",
        "0",
        "4294967295",
        "99999999999",
        "claim",
        "by",
        "final",
        "signal",
        "wait",
        "f32",
        "\n",
        "\n",
        "\n",
        " ",
        "é",
    ];
    let piece = prop::sample::select(pieces.to_vec());
    let pieces = prop::collection::vec(piece, 0..60);
    pieces.prop_map(|pieces| pieces.join(" "))
}

/// A right text with some characters replaced.
fn damaged() -> impl Strategy<Value = String> {
    let text: String = samples::all(2)
        .iter()
        .map(|sample| print(&sample.schedules))
        .collect();
    let characters: Vec<char> = text.chars().collect();
    let places = prop::collection::vec((0..characters.len(), any::<char>()), 1..8);
    let harm = prop_oneof![
        Just(None),
        prop::sample::select("0123456789.#@[]()\n <-+".chars().collect::<Vec<_>>()).prop_map(Some)
    ];
    (places, harm).prop_map(move |(places, harm)| {
        let mut characters = characters.clone();
        for (place, any) in places {
            characters[place] = harm.unwrap_or(any);
        }
        characters.into_iter().collect()
    })
}

/// Parsed text is printed in a form that parses to the same schedules.
fn check_any_text(text: &str) -> Result<(), TestCaseError> {
    if let Ok(schedules) = parse(text) {
        prop_assert_eq!(parse(&print(&schedules)), Ok(schedules));
    }
    Ok(())
}

proptest! {
    #[test]
    fn any_schedules_are_read_back(schedules in prop::collection::vec(schedule(), 0..4)) {
        prop_assert_eq!(parse(&print(&schedules)), Ok(schedules));
    }

    #[test]
    fn no_bytes_make_the_parser_panic(bytes: Vec<u8>) {
        check_any_text(&String::from_utf8_lossy(&bytes))?;
    }

    #[test]
    fn no_words_make_the_parser_panic(text in soup()) {
        check_any_text(&text)?;
    }

    #[test]
    fn no_damage_makes_the_parser_panic(text in damaged()) {
        check_any_text(&text)?;
    }

    /// Well-formed schedules may be rejected by the verifier, but without a panic.
    #[test]
    fn no_schedules_make_the_verifier_panic(text in damaged()) {
        let schedules = parse(&text).unwrap_or_default();
        for mapped in [weft_schedule::Mapped::None, weft_schedule::Mapped::All] {
            let _ = weft_schedule::verify(&schedules, &weft_schedule::VerifyOptions::mapped(mapped));
        }
    }
}

#[test]
fn collectives_parse_by_name_and_keep_roots() {
    for name in [
        "all-reduce",
        "reduce",
        "broadcast",
        "all-gather",
        "reduce-scatter",
        "all-to-all",
        "gather",
        "scatter",
        "barrier",
    ] {
        let collective = Collective::named(name, 3).unwrap();
        assert_eq!(collective.name(), name);
        let rooted = ["reduce", "broadcast", "gather", "scatter"].contains(&name);
        assert_eq!(collective.root(), rooted.then_some(3));
        assert!(collective.to_string().starts_with(name));
    }
    assert_eq!(Collective::named("all-reduces", 0), None);
}
