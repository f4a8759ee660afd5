//! Tests of names of choices: parsing, and the allowed values in the errors of wrong names.

use weft_algorithms::{Parts, Selection, Topology, family, registry, select};
use weft_schedule::Collective;

fn check(name: &str, expected: Result<&str, &str>) {
    let found = select("all-reduce", name).map(|selection| selection.name());
    match (found, expected) {
        (Ok(found), Ok(expected)) => assert_eq!(found, expected),
        (Err(found), Err(expected)) => {
            assert!(found.contains(expected), "{found:?} lacks {expected:?}");
        }
        (found, expected) => panic!("{name:?} is {found:?}, not {expected:?}"),
    }
}

#[test]
fn names_are_understood() {
    check("ring", Ok("ring"));
    check(" ring ", Ok("ring"));
    check("multi-rail", Ok("multi-rail(direct, ring)"));
    check(
        "multi-rail( slice-reduce ,two-shot)",
        Ok("multi-rail(slice-reduce, two-shot)"),
    );
    check(
        "multi-rail(slice-reduce, direct, torus)",
        Ok("multi-rail(slice-reduce, direct, torus)"),
    );
    check("parameter-server", Ok("parameter-server"));
    check("parameter-server(4)", Ok("parameter-server(4)"));
    check("torus(2)", Ok("torus(2)"));
}

#[test]
fn wrong_names_are_refused_with_allowed_ones() {
    check("rong", Err("there are: ring, "));
    check("ring(direct)", Err("takes no components"));
    check("multi-rail(ring", Err("lacks its closing parenthesis"));
    check("multi-rail(ring)", Err("takes at least a component"));
    check(
        "multi-rail(torus, ring)",
        Err("no component \"torus\" for the inside of units; there are: direct, ring, "),
    );
    check(
        "multi-rail(ring, leaders)",
        Err("no component \"leaders\" for between units; there are: ring, "),
    );
    check(
        "parameter-server(0)",
        Err("takes a number of servers, from 1 to"),
    );
    check("torus(two)", Err("takes a number of rows"));
    check("torus(2, 3)", Err("takes one number, of rows"));
    assert!(select("all-at-once", "ring").is_err());
}

#[test]
fn families_are_made_of_names_that_are_understood() {
    let nested = Topology::levels(vec![vec![0, 0, 1, 1, 2, 2], vec![0, 0, 0, 0, 1, 1]]).unwrap();
    for topology in [Topology::flat(4), Topology::hosts(&[0, 0, 1]), nested] {
        for algorithm in registry() {
            for selection in family(algorithm.collective, &topology) {
                let name = selection.name();
                let found = select(algorithm.collective, &name).map(|found| found.name());
                assert_eq!(found, Ok(name));
            }
        }
    }
}

#[test]
fn composed_choices_need_units() {
    let composed = |topology: &Topology| {
        let family = family(Collective::AllReduce.name(), topology);
        let names = family.iter().map(|selection| selection.algorithm.name);
        names.filter(|name| *name == "multi-rail").count()
    };
    assert_eq!(composed(&Topology::flat(4)), 0);
    assert_eq!(composed(&Topology::hosts(&[0, 0, 0])), 0);
    assert_eq!(composed(&Topology::hosts(&[0, 1, 2])), 0);
    assert!(composed(&Topology::hosts(&[0, 0, 1])) > 10);
}

#[test]
fn every_collective_has_a_choice_for_units() {
    let for_units = |collective: &str, topology: &Topology| {
        let of_units = |selection: &Selection| {
            let parts = selection.algorithm.requires.parts;
            matches!(parts, Parts::Levels { .. } | Parts::Units)
        };
        family(collective, topology).iter().any(of_units)
    };
    let one_host = Topology::domains(&[vec![0, 0, 1, 1]], &[0; 4]).unwrap();
    for collective in Collective::NAMES {
        for hosts in [[0, 0, 1], [0, 1, 0]] {
            assert!(
                for_units(collective, &Topology::hosts(&hosts)),
                "{collective}"
            );
        }
        let lone = [
            Topology::flat(3),
            Topology::hosts(&[0, 1, 2]),
            Topology::hosts(&[0; 3]),
        ];
        for topology in lone {
            assert!(
                !for_units(collective, &topology),
                "{collective} {topology:?}"
            );
        }
    }
    assert!(!for_units("all-gather", &one_host));
}
