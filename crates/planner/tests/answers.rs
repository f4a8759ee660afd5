//! Tests of the planner's answers to every request, on small cases.

use serde_json::{Value, json};
use weft_planner::{Findings, PlanAnswer, algorithms, family, plan, price, simulate, verify};

mod common;

use common::{ask, call, machine};

fn planned(algorithm: &str, request: Value) -> PlanAnswer {
    ask(plan, json!({"algorithm": algorithm, "call": request})).unwrap()
}

fn report(answer: &PlanAnswer) -> &Findings {
    answer.verdict.report.as_ref().unwrap()
}

#[test]
fn algorithms_are_listed_with_their_needs() {
    let all = algorithms().unwrap();
    let find = |collective, name| {
        let mut found = all
            .iter()
            .filter(|a| (a.collective, a.name) == (collective, name));
        found.next().unwrap()
    };
    assert_eq!(find("all-reduce", "ring").needs.mapped, "none");
    let sliced = find("all-reduce", "slice-reduce");
    assert_eq!(
        (sliced.needs.mapped, sliced.needs.reproducible),
        ("all", true)
    );
    assert!(find("all-gather", "direct").needs.per_rank_sizes);
    let rails = find("all-reduce", "multi-rail");
    assert!(
        rails.full_name.starts_with("multi-rail("),
        "{}",
        rails.full_name
    );
    assert_eq!(rails.needs.mapped, "none");
    assert!(
        all.iter()
            .all(|algorithm| !algorithm.about.formulas.is_empty())
    );
}

#[test]
fn a_plan_is_verified_and_read_again() {
    let answer = planned("ring", call("all-reduce", 4, json!({"hosts": [1, 3]})));
    assert_eq!(
        (answer.collective, answer.algorithm.as_str()),
        ("all-reduce", "ring")
    );
    assert_eq!(
        (answer.ranks, answer.hosts.as_slice()),
        (4, [1, 3].as_slice())
    );
    assert_eq!(answer.refusal, None);
    assert_eq!(report(&answer).latency_steps, 6);
    assert_eq!(report(&answer).sent, [Some(1.5); 4]);
    let again = ask(
        verify,
        json!({"text": answer.text, "mapped": "none", "hosts": 4}),
    );
    assert_eq!(again.unwrap(), answer.verdict);
}

#[test]
fn a_plan_shows_one_rank() {
    let request = call("broadcast", 3, json!({"root": 2}));
    let answer = ask(
        plan,
        json!({"algorithm": "binomial", "rank": 1, "call": request}),
    )
    .unwrap();
    let ranks = answer.text.lines().filter(|line| line.starts_with("rank "));
    assert_eq!(ranks.collect::<Vec<_>>(), ["rank 1"]);
    assert_eq!(report(&answer).root, Some(2));
}

#[test]
fn plan_names_its_refusal() {
    let hosts = planned("slice-reduce", call("all-reduce", 4, json!({"hosts": 2})));
    let why = "needs ranks that all share memory, but there are 2 hosts";
    assert_eq!(hosts.refusal.as_deref(), Some(why));
    assert!(!hosts.verdict.verified);
    assert!(hosts.verdict.problem.unwrap().rank.is_some());
}

#[test]
fn symmetric_memory_and_domains_are_planned_for() {
    let symmetric = json!({"memory": "symmetric", "domains": [2, 3]});
    let name = "multi-rail(slice-reduce, slice-reduce)";
    let answer = planned(name, call("all-reduce", 5, symmetric));
    assert_eq!(answer.refusal, None);
    assert_eq!(answer.verdict.problem, None);
    let rails = call("all-reduce", 4, json!({"hosts": 2}));
    let rails = planned("multi-rail(slice-reduce, ring)", rails);
    assert_eq!((rails.needs.mapped, rails.refusal), ("unit", None));
    let per_rank = call("all-gather", 3, json!({"sizes": "per-rank"}));
    assert_eq!(report(&planned("direct", per_rank)).sent, [None; 3]);
}

#[test]
fn wrong_schedules_are_reported_with_place() {
    let text = planned("ring", call("all-reduce", 2, json!({}))).text;
    let judged = |text: &str| ask(verify, json!({"text": text, "mapped": "all"})).unwrap();
    assert!(judged(&text).verified);
    let deadlock = judged(&text.replace("signal", "wait")).problem.unwrap();
    assert_eq!((deadlock.rank.is_some(), deadlock.line), (true, None));
    let unreadable = judged("schedule of nothing").problem.unwrap();
    assert_eq!((unreadable.rank, unreadable.line), (None, Some(1)));
}

#[test]
fn family_lists_usable_algorithms() {
    let names = |hosts: Value, domains: Value| {
        let request =
            json!({"collective": "all-reduce", "ranks_per_host": hosts, "domains": domains});
        ask(family, request).unwrap()
    };
    let has = |names: &[String], name: &str| names.iter().any(|known| known == name);
    let rails = "multi-rail(slice-reduce, ring)";
    let one_host = names(json!([4]), json!([]));
    assert!(has(&one_host, "slice-reduce") && !has(&one_host, rails));
    let two_hosts = names(json!([2, 2]), json!([]));
    assert!(has(&two_hosts, rails) && !has(&two_hosts, "slice-reduce"));
    assert!(!has(&two_hosts, "multi-rail(slice-reduce, slice-reduce)"));
    let domains = names(json!([4]), json!([[0, 0, 1, 1]]));
    assert!(has(&domains, "multi-rail(slice-reduce, slice-reduce)"));
}

/// A job of 1 MiB on the first machine.
fn job(algorithm: &str, schedule: Option<u32>) -> Value {
    json!({
        "machine": 0, "collective": "all-reduce", "algorithm": algorithm, "schedule": schedule,
        "bytes": 1 << 20, "element_bytes": 4, "tile_bytes": null, "tiles_in_flight": null,
    })
}

#[test]
fn prices_follow_the_job_and_the_method() {
    let own = planned("ring", call("all-reduce", 4, json!({"hosts": 4}))).text;
    let seconds = |method: &str| {
        let jobs = [
            job("ring", None),
            job("mine", Some(0)),
            job("gather-to-root", None),
        ];
        let request = json!({"machines": [machine(&[1; 4])], "jobs": jobs, "schedules": [own], "method": method});
        ask(price, request).unwrap().seconds
    };
    let [ring, mine, root] = seconds("event-driven").try_into().unwrap();
    assert!((ring - mine).abs() < 1e-9 * ring, "{ring} {mine}");
    assert!(ring < root);
    let [formula, simulated, _] = seconds("closed-form").try_into().unwrap();
    assert!(formula != ring && (0.5..2.0).contains(&(formula / ring)));
    assert_eq!(simulated, mine);
}

#[test]
fn simulations_have_a_row_for_each_algorithm() {
    let names = json!(["ring", "slice-reduce"]);
    let request = json!({
        "call": call("all-reduce", 4, json!({"hosts": 2})), "machine": {},
        "algorithms": names, "bytes": [4096, 1 << 20],
    });
    let rows = ask(simulate, request).unwrap().rows;
    assert_eq!(rows[0].algorithm, "ring");
    assert!(rows[0].times_s[0] < rows[0].times_s[1]);
    assert_eq!(
        (rows[0].refusal.as_ref(), rows[0].mode.as_str()),
        (None, "")
    );
    let why = "needs ranks that all share memory, but there are 2 hosts";
    assert_eq!(rows[1].refusal.as_deref(), Some(why));
    assert!(rows[1].times_s.is_empty());
}

#[test]
fn unmapped_host_takes_no_mapped_algorithm() {
    let loopback = json!({"host": {"loopback": machine(&[1])["network"]}});
    let request = json!({
        "call": call("all-reduce", 4, json!({})), "machine": loopback,
        "algorithms": ["ring", "slice-reduce"], "bytes": [4096],
    });
    let rows = ask(simulate, request).unwrap().rows;
    assert_eq!(rows[0].refusal, None);
    assert_eq!(
        rows[1].refusal.as_deref(),
        Some("needs all ranks on one host")
    );
}

#[test]
fn simulations_play_and_trace_schedules() {
    let group = call("all-reduce", 2, json!({"hosts": 2}));
    let text = planned("two-shot", group.clone()).text;
    let request = json!({
        "call": group, "machine": {"network": {"latency_s": 1.0}}, "algorithms": ["two-shot"],
        "schedules": [{"name": "mine", "text": text}], "bytes": [4096], "trace": true,
    });
    let rows = ask(simulate, request).unwrap().rows;
    let [built_in, mine] = rows.as_slice() else {
        panic!("{rows:?}");
    };
    assert_eq!(
        (mine.algorithm.as_str(), mine.mode.as_str()),
        ("mine", "full")
    );
    assert_eq!(mine.events, built_in.events);
    assert!(mine.times_s[0] > 2.0);
    let kinds = |kind| {
        mine.events
            .iter()
            .filter(|event| event.kind == kind)
            .count()
    };
    assert_eq!((kinds("reduce"), kinds("transfer")), (2, 4));
    assert!(mine.events.iter().all(|event| event.start <= event.end));
}

#[test]
fn lack_of_memory_is_reported_or_assumed_away() {
    let ask_for = |enough: bool| {
        let request = json!({
            "call": call("all-reduce", 10_000, json!({"hosts": 10_000})), "machine": {},
            "algorithms": ["halving-doubling"], "bytes": [1 << 20], "enough_memory": enough,
        });
        ask(simulate, request).unwrap().rows.remove(0)
    };
    assert!(ask_for(false).refusal.unwrap().contains("temporary memory"));
    let assumed = ask_for(true);
    assert_eq!((assumed.refusal, assumed.times_s.len()), (None, 1));
    assert!(
        assumed
            .assumption
            .unwrap()
            .contains("more temporary memory")
    );
}
