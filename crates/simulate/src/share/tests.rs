//! Tests of fair shares: a textbook example, cases computed by hand, and the definition.

use super::*;
use proptest::prelude::*;

/// The rates of one flow on each path.
fn rates(capacities: &[f64], paths: &[(&[ResourceId], f64)]) -> Vec<f64> {
    let mut shares = Shares::default();
    for capacity in capacities {
        shares.add_resource(*capacity);
    }
    for (owner, (path, rate_max)) in paths.iter().enumerate() {
        let path: Vec<_> = path.iter().map(|resource| (*resource, 1.0)).collect();
        let bundle = shares.add_bundle(&path, *rate_max);
        shares.add_flow(0.0, bundle, 1.0, owner as u32);
    }
    shares.settle(0.0, &mut |_| {});
    shares.bundles.iter().map(|bundle| bundle.rate).collect()
}

#[test]
fn the_textbook_example() {
    // Bertsekas and Gallager: a long path and short ones; the others get the capacity that the long
    // one cannot use.
    let unlimited = f64::INFINITY;
    let paths: [(&[ResourceId], f64); 4] = [
        (&[0, 1], unlimited),
        (&[0], unlimited),
        (&[0], unlimited),
        (&[1], unlimited),
    ];
    let third = 1.0 / 3.0;
    assert_eq!(
        rates(&[1.0, 1.0], &paths),
        [third, third, third, 1.0 - third]
    );
}

#[test]
fn limited_flow_leaves_the_rest_to_others() {
    let paths: [(&[ResourceId], f64); 2] = [(&[0], 0.25), (&[0], f64::INFINITY)];
    assert_eq!(rates(&[1.0], &paths), [0.25, 0.75]);
}

#[test]
fn bundled_flows_share_and_end_in_order() {
    let mut shares = Shares::default();
    let resource = shares.add_resource(2.0);
    let bundle = shares.add_bundle(&[(resource, 1.0)], f64::INFINITY);
    shares.add_flow(0.0, bundle, 4.0, 0);
    let mut endings = Vec::new();
    shares.settle(0.0, &mut |ending| endings.push(ending));
    assert_eq!(endings.pop().map(|ending| ending.time), Some(2.0));
    // At 1 the first has 2 left; both get 1 from then on.
    shares.add_flow(1.0, bundle, 3.0, 1);
    shares.settle(1.0, &mut |ending| endings.push(ending));
    let mut owners = Vec::new();
    let mut times = Vec::new();
    while let Some(ending) = endings.pop() {
        shares.end(ending.time, (ending.bundle, ending.version), &mut owners);
        times.push(ending.time);
        shares.settle(ending.time, &mut |ending| endings.push(ending));
    }
    assert_eq!((owners, times), (vec![0, 1], vec![3.0, 3.5]));
}

#[test]
fn unconnected_bundles_keep_their_rates() {
    let mut shares = Shares::default();
    let resources = [shares.add_resource(1.0), shares.add_resource(1.0)];
    let bundles = resources.map(|resource| shares.add_bundle(&[(resource, 1.0)], f64::INFINITY));
    shares.add_flow(0.0, bundles[0], 1.0, 0);
    shares.settle(0.0, &mut |_| {});
    shares.add_flow(0.5, bundles[1], 1.0, 1);
    let mut reported = Vec::new();
    shares.settle(0.5, &mut |ending| reported.push(ending.bundle));
    assert_eq!(reported, [bundles[1]]);
}

/// A path through some resources, each with a weight.
type Path = Vec<(ResourceId, f64)>;

const RESOURCES: usize = 5;

fn network() -> impl Strategy<Value = (Vec<f64>, Vec<(Path, f64)>)> {
    let used = prop::option::weighted(0.4, 1..4_u32);
    let path = prop::collection::vec(used, RESOURCES).prop_map(|uses| -> Path {
        let uses = (0..).zip(uses);
        uses.filter_map(|(resource, weight)| Some((resource, f64::from(weight?))))
            .collect()
    });
    let bundle = (path, prop_oneof![Just(f64::INFINITY), 0.1..3.0]);
    let bundles = prop::collection::vec(bundle, 1..8);
    (prop::collection::vec(0.5..4.0, RESOURCES), bundles)
}

fn shares(capacities: &[f64], bundles: &[(Path, f64)]) -> Shares {
    let mut shares = Shares::default();
    for capacity in capacities {
        shares.add_resource(*capacity);
    }
    for (path, rate_max) in bundles {
        // A bundle that uses no resource is bound by a limit.
        let limit = if path.is_empty() {
            rate_max.min(1.0)
        } else {
            *rate_max
        };
        shares.add_bundle(path, limit);
    }
    shares
}

/// The load of every resource.
fn carried(shares: &Shares, bundles: &[(Path, f64)]) -> Vec<f64> {
    let mut carried = vec![0.0; RESOURCES];
    for ((path, _), bundle) in bundles.iter().zip(&shares.bundles) {
        for (resource, weight) in path {
            carried[*resource as usize] += weight * bundle.rate * bundle.flows.len() as f64;
        }
    }
    carried
}

proptest! {
    /// The definition: no resource carries more than its capacity, and no rate can be raised
    /// without lowering that of a flow that has no more: every flow has its limit, or passes a full
    /// resource on which no flow has more.
    #[test]
    fn rates_are_max_min_fair((capacities, bundles) in network(), starts in prop::collection::vec((0..8_usize, 1..9_u32), 1..30)) {
        let mut shares = shares(&capacities, &bundles);
        let mut owners = Vec::new();
        for (turn, (index, size)) in starts.iter().enumerate() {
            let (now, id) = (turn as f64, (index % bundles.len()) as BundleId);
            if bundles[id as usize].0.is_empty() {
                continue;
            }
            let busy = !shares.bundles[id as usize].flows.is_empty();
            if busy && size % 2 == 0 {
                let version = shares.bundles[id as usize].version;
                shares.end(now, (id, version), &mut owners);
            } else {
                shares.add_flow(now, id, f64::from(*size) * 1e3, 0);
            }
            shares.settle(now, &mut |_| {});
            let carried = carried(&shares, &bundles);
            for (found, capacity) in carried.iter().zip(&capacities) {
                prop_assert!(*found <= capacity * (1.0 + 1e-9));
            }
            for ((path, rate_max), bundle) in bundles.iter().zip(&shares.bundles) {
                if bundle.flows.is_empty() {
                    continue;
                }
                let most = |resource: ResourceId| {
                    let users = bundles.iter().zip(&shares.bundles);
                    let uses = users.filter(|((path, _), other)| {
                        !other.flows.is_empty() && path.iter().any(|(r, _)| *r == resource)
                    });
                    uses.map(|(_, other)| other.rate).fold(0.0, f64::max)
                };
                let bound = path.iter().any(|(resource, _)| {
                    let index = *resource as usize;
                    carried[index] >= capacities[index] * (1.0 - 1e-9)
                        && bundle.rate >= most(*resource) * (1.0 - 1e-9)
                });
                prop_assert!(bound || bundle.rate >= rate_max * (1.0 - 1e-9));
            }
        }
    }
}
