//! Tests of refusals: error messages that name the invalid value and the allowed values.

use serde_json::{Value, json};
use weft_planner::{family, plan, price, simulate, verify};

mod common;

use common::{ask, call, machine};

/// Checks that a refusal contains a text.
fn check<A>(answer: Result<A, String>, message: &str) {
    match answer {
        Ok(_) => panic!("answered, instead of {message:?}"),
        Err(why) => assert!(why.contains(message), "{why:?}, instead of {message:?}"),
    }
}

fn planned(algorithm: &str, collective: &str, changes: Value) -> Result<(), String> {
    let request = json!({"algorithm": algorithm, "call": call(collective, 4, changes)});
    ask(plan, request).map(drop)
}

#[test]
fn invalid_calls_are_refused() {
    for (changes, message) in [
        (json!({"ranks": 0}), "ranks=0: from 1 to 1024"),
        (json!({"ranks": 1025}), "ranks=1025: from 1 to 1024"),
        (
            json!({"root": 1}),
            "root=1: all-reduce has none, so leave it out",
        ),
        (json!({"hosts": 5}), "5 hosts for 4 ranks: give 1 to 4"),
        (json!({"hosts": 0}), "0 hosts for 4 ranks: give 1 to 4"),
        (
            json!({"hosts": [1, 2]}),
            "hosts of [1, 2] ranks for 4 ranks: each has at least 1, all together 4",
        ),
        (
            json!({"hosts": [4, 0]}),
            "hosts of [4, 0] ranks for 4 ranks: each has at least 1",
        ),
        (
            json!({"hosts": -1}),
            "hosts=-1: a number of hosts, or a list",
        ),
        (
            json!({"hosts": 2, "domains": 3}),
            "domains: 3 domains for 2 ranks: give 1 to 2",
        ),
        (
            json!({"domains": [2, 3]}),
            "domains: domains of [2, 3] ranks for 4 ranks",
        ),
        (
            json!({"hosts": 2, "domains": [1, 2, 1]}),
            "domains: ranks 1 and 2 share one, but no host",
        ),
        (
            json!({"hosts": 2, "memory": "symmetric"}),
            "memory=\"symmetric\" on 2 hosts: symmetric memory is shared",
        ),
        (
            json!({"memory": "mapped"}),
            "unknown variant `mapped`, expected `ordinary` or `symmetric`",
        ),
        (
            json!({"sizes": "any"}),
            "unknown variant `any`, expected `equal` or `per-rank`",
        ),
        (
            json!({"sizes": "per-rank"}),
            "sizes=\"per-rank\": all-reduce ring supports blocks of equal size only",
        ),
        (
            json!({"count": 1}),
            "unknown field `count`, expected one of `collective`, `ranks`",
        ),
    ] {
        check(planned("ring", "all-reduce", changes), message);
    }
    check(
        planned("ring", "sum", json!({})),
        "collective=\"sum\": one of all-reduce, reduce, broadcast, all-gather, reduce-scatter, all-to-all, gather, \
         scatter, barrier",
    );
    check(
        planned("binomial", "reduce", json!({"root": 4})),
        "root=4: from 0 to 3",
    );
    check(
        planned("nope", "all-reduce", json!({})),
        "unknown algorithm \"nope\" for all-reduce; there are: ring, direct",
    );
    let request = json!({"algorithm": "ring", "rank": 4, "call": call("all-reduce", 4, json!({}))});
    check(ask(plan, request), "rank=4: from 0 to 3");
}

#[test]
fn options_of_the_verifier() {
    let text = json!({"algorithm": "ring", "call": call("all-reduce", 2, json!({}))});
    let text = ask(plan, text).unwrap().text;
    let verified = |mapped: &str, hosts: Value| {
        ask(
            verify,
            json!({"text": text, "mapped": mapped, "hosts": hosts}),
        )
    };
    check(
        verified("some", Value::Null),
        "expected one of `none`, `scratch`, `all`",
    );
    check(
        verified("none", json!(3)),
        "3 hosts for 2 ranks: give 1 to 2",
    );
    check(
        verified("none", json!([1, 2])),
        "each has at least 1, all together 2",
    );
}

#[test]
fn groups_without_a_family() {
    let asked = |collective: &str, domains: Value| {
        let request = json!({"collective": collective, "ranks_per_host": [4], "domains": domains});
        ask(family, request)
    };
    check(
        asked("sum", json!([])),
        "collective=\"sum\": one of all-reduce, reduce",
    );
    check(
        asked("reduce", json!([[0, 1]])),
        "domains: level 0 of the domains names 2 ranks, but there are 4",
    );
}

fn priced(changes: Value, schedules: Value) -> Result<(), String> {
    let mut job = json!({
        "machine": 0, "collective": "all-reduce", "algorithm": "ring", "schedule": null,
        "bytes": 4096, "element_bytes": 4, "tile_bytes": null, "tiles_in_flight": null,
    });
    for (field, value) in changes.as_object().unwrap() {
        job[field] = value.clone();
    }
    let request = json!({
        "machines": [machine(&[2, 2])], "jobs": [job], "schedules": schedules, "method": "closed-form",
    });
    ask(price, request).map(drop)
}

#[test]
fn jobs_that_have_no_price() {
    for (changes, message) in [
        (json!({"machine": 1}), "machine 1: there are 1"),
        (json!({"schedule": 0}), "schedule 0: there are 0"),
        (
            json!({"collective": "sum"}),
            "unknown algorithm \"ring\" for sum",
        ),
        (
            json!({"algorithm": "nope"}),
            "unknown algorithm \"nope\" for all-reduce",
        ),
        (
            json!({"algorithm": "slice-reduce"}),
            "slice-reduce: the algorithm needs all ranks on one host",
        ),
        (
            json!({"element_bytes": 0}),
            "ring: the job cannot be simulated: element_bytes",
        ),
    ] {
        check(priced(changes, json!([])), message);
    }
    check(priced(json!({}), json!(["nothing"])), "schedule 0: line 1");
}

fn simulated(changes: Value) -> Result<(), String> {
    let mut request = json!({
        "call": call("all-reduce", 4, json!({"hosts": 2})), "machine": {}, "algorithms": ["ring"], "bytes": [4096],
    });
    for (field, value) in changes.as_object().unwrap() {
        request[field] = value.clone();
    }
    ask(simulate, request).map(drop)
}

#[test]
fn invalid_simulations_are_refused() {
    let machine = |changes: Value| json!({"machine": changes});
    for (changes, message) in [
        (
            json!({"call": call("all-reduce", 200_001, json!({}))}),
            "ranks=200001: from 1 to 200000",
        ),
        (
            json!({"bytes": [4096, 3]}),
            "bytes=3: at least 4, the size of an element",
        ),
        (
            json!({"algorithms": ["nope"]}),
            "unknown algorithm \"nope\" for all-reduce",
        ),
        (
            json!({"schedules": [{"name": "mine", "text": "?"}]}),
            "schedule \"mine\": line 1",
        ),
        (
            machine(json!({"network": {"speed": 1}})),
            "there is no machine.network.speed; there are: ",
        ),
        (
            machine(json!({"network": 1})),
            "machine.network=1: expected an object with some of ",
        ),
        (
            machine(json!({"network": {"latency_s": "long"}})),
            "the machine cannot be read: ",
        ),
        (
            machine(json!({"network": {"bytes_per_s": 0}})),
            "network.bytes_per_s is 0; it must be more than 0",
        ),
        (
            machine(json!({"shared_cores": 0})),
            "shared_cores is 0; it must be at least 1",
        ),
    ] {
        check(simulated(changes), message);
    }
    let group = call("all-reduce", 4, json!({"hosts": 2}));
    let text = ask(plan, json!({"algorithm": "ring", "call": group}))
        .unwrap()
        .text;
    let wrong = json!([{"name": "mine", "text": text.replacen("signal", "wait", 1)}]);
    check(
        simulated(json!({"schedules": wrong})),
        "schedule \"mine\": rank ",
    );
}
