//! Pools in the order of their trainer, compared with lists of accelerators.

#![allow(clippy::expect_used, reason = "a test that expects too much fails, as it should")]

use std::collections::BTreeMap;

use proptest::prelude::*;
use rankplan_core::requests::{Bundle, Kind, Row, runs_of};
use rankplan_core::sorting::Sorting;
use rankplan_core::{GroupNames, NodeOrder, NodeRuns, RankRange, Requests, Taken};

use crate::common::inventory;

#[allow(dead_code, reason = "other tests place on pools")]
mod common;

/// A group by itself: the node and the size of each bundle, and its accelerators.
#[derive(Clone, Debug)]
struct Group {
    component: &'static str,
    order: Option<NodeOrder>,
    bundles: Vec<(u32, u32)>,
    accelerators: Vec<u32>,
}

/// What is drawn for a group: its component, whether it is sorted, and by bundle a node, a first accelerator and a size.
type Drawn = (usize, bool, Vec<(u32, u32, u32)>);

fn drawn() -> impl Strategy<Value = Drawn> {
    let bundle = (0_u32..4, 0_u32..3, 1_u32..4);
    (0_usize..2, prop::bool::weighted(0.7), prop::collection::vec(bundle, 1..4))
}

fn group(counts: &[u32], (component, is_sorted, drawn): Drawn) -> Group {
    let (mut bundles, mut accelerators) = (Vec::new(), Vec::new());
    for (node, first, size) in drawn {
        let node = node % counts.len() as u32;
        let count = counts[node as usize];
        let start: u32 = counts[..node as usize].iter().sum();
        let size = size.min(count);
        let first = first.min(count - size);
        bundles.push((node, size));
        accelerators.extend(start + first..start + first + size);
    }
    let order = is_sorted.then_some(NodeOrder::Id);
    Group { component: ["actor", "ref"][component], order, bundles, accelerators }
}

fn row(group: &Group) -> Row {
    let mut nodes = NodeRuns::default();
    group.bundles.iter().for_each(|&(node, _)| nodes.push(node, 1));
    let bundles = runs_of(group.bundles.iter().map(|&(_, size)| (1, Bundle::from(size))));
    let component = group.component.to_owned();
    Row {
        kind: Kind { component, strategy: Some("PACK".into()), optional: false, order: group.order, bundles },
        names: Some(GroupNames::Same("group".into())),
        groups: 1,
        nodes,
    }
}

fn taken(accelerators: &[u32]) -> Taken {
    Taken::from_ranges(accelerators.iter().filter_map(|&one| RankRange::new(one, one))).expect("few")
}

fn once_each(nodes: impl IntoIterator<Item = u32>) -> Vec<u32> {
    let mut found = Vec::new();
    for node in nodes {
        if !found.contains(&node) {
            found.push(node);
        }
    }
    found
}

/// Neighbours of a component that are sorted.
fn pools(groups: &[Group]) -> Vec<Vec<usize>> {
    let mut pools: Vec<Vec<usize>> = Vec::new();
    for (number, group) in groups.iter().enumerate().filter(|(_, group)| group.order.is_some()) {
        match pools.last_mut() {
            Some(pool) if groups[pool[0]].component == group.component => pool.push(number),
            _ => pools.push(vec![number]),
        }
    }
    pools
}

/// The accelerators of a pool, bundle after bundle: whole nodes, or those that its component has there.
fn before(groups: &[Group], pool: &[usize], counts: &[u32], owned: Option<&Vec<u32>>) -> Option<Vec<u32>> {
    let start = |node: u32| counts[..node as usize].iter().sum::<u32>();
    let bundles: Vec<(u32, u32)> = pool.iter().flat_map(|&number| groups[number].bundles.clone()).collect();
    if bundles.iter().all(|&(node, size)| size == counts[node as usize]) {
        return Some(bundles.iter().flat_map(|&(node, size)| start(node)..start(node) + size).collect());
    }
    let component = groups[pool[0]].component;
    let earlier = groups[..pool[0]].iter().filter(|group| group.component == component);
    let mut left = owned?.iter().skip(earlier.map(|group| group.accelerators.len()).sum());
    let mut found = Vec::new();
    for (node, size) in bundles {
        for _ in 0..size {
            let accelerator = *left.next()?;
            if !(start(node)..start(node) + counts[node as usize]).contains(&accelerator) {
                return None;
            }
            found.push(accelerator);
        }
    }
    Some(found)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1500, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn pools_are_sorted_by_the_ids_of_nodes(
        counts in prop::collection::vec(1_u32..4, 2..5),
        drawn in prop::collection::vec((drawn(), 1_usize..4), 1..5),
        ids in Just((0..4).collect::<Vec<u32>>()).prop_shuffle(),
        is_known in prop::bool::weighted(0.9),
        may_exchange in prop::bool::weighted(0.8),
    ) {
        let inventory = inventory(&counts);
        let node_of = |accelerator: u32| inventory.place(accelerator).expect("it is one of them").0.0;
        let groups: Vec<Group> =
            drawn.into_iter().flat_map(|(drawn, times)| vec![group(&counts, drawn); times]).collect();
        let mut requests = Requests::default();
        groups.iter().for_each(|group| requests.push(row(group)));
        let mut owned: BTreeMap<String, Vec<u32>> = BTreeMap::new();
        for group in groups.iter().filter(|_| is_known) {
            owned.entry(group.component.into()).or_default().extend(&group.accelerators);
        }
        let names: Vec<String> = ids[..counts.len()].iter().map(u32::to_string).collect();
        let held = owned.iter().map(|(name, accelerators)| (name.clone(), taken(accelerators))).collect();
        let found = Sorting::of(&requests, &inventory, &names, &held, |_| may_exchange);

        let place = |node: u32| ids[node as usize];
        let mut sorted: Vec<Vec<u32>> =
            groups.iter().map(|group| group.bundles.iter().map(|&(node, _)| node).collect()).collect();
        let (mut unsorted, mut moved) = (Vec::new(), BTreeMap::new());
        for pool in pools(&groups) {
            let nodes: Vec<u32> = pool.iter().flat_map(|&number| sorted[number].clone()).collect();
            if nodes.is_sorted_by_key(|&node| place(node)) {
                continue;
            }
            let mut there = nodes.clone();
            there.sort_by_key(|&node| place(node));
            let sizes: Vec<u32> = pool.iter().flat_map(|&number| groups[number].bundles.iter().map(|&(_, size)| size)).collect();
            let old = before(&groups, &pool, &counts, owned.get(groups[pool[0]].component)).filter(|_| may_exchange);
            let new = old.clone().map(|mut new| {
                new.sort_by_key(|&accelerator| place(node_of(accelerator)));
                new
            });
            let mut bundles: Vec<u32> = Vec::new();
            let mut is_torn = false;
            for (index, size) in sizes.iter().enumerate() {
                let first = sizes[..index].iter().sum::<u32>() as usize;
                let on: Vec<u32> =
                    new.iter().flatten().skip(first).take(*size as usize).map(|&accelerator| node_of(accelerator)).collect();
                is_torn |= on.iter().any(|node| *node != on[0]);
                bundles.extend(on.first());
            }
            let exchanged = new.is_some() && !is_torn;
            unsorted.push((groups[pool[0]].component, once_each(nodes), once_each(there), exchanged));
            if exchanged {
                let mut bundles = bundles.into_iter();
                for &number in &pool {
                    sorted[number] = bundles.by_ref().take(groups[number].bundles.len()).collect();
                }
                moved.extend(old.into_iter().flatten().zip(new.into_iter().flatten()));
            }
        }
        let ranks = |nodes: &[rankplan_core::NodeRank]| nodes.iter().map(|node| node.0).collect::<Vec<_>>();
        let told: Vec<_> = found.unsorted.iter()
            .map(|one| (&one.component[..], ranks(&one.here), ranks(&one.there), one.exchanged)).collect();
        prop_assert_eq!(told, unsorted);
        let nodes: Vec<Vec<u32>> = (0..found.requests.len())
            .map(|number| {
                let (row, group) = found.requests.get(number).expect("a number below the length");
                row.nodes_of(group).iter().map(|node| node.0).collect()
            })
            .collect();
        prop_assert_eq!(nodes, sorted);
        for accelerators in owned.values() {
            let expected: Vec<u32> = accelerators.iter().map(|one| *moved.get(one).unwrap_or(one)).collect();
            let changes = accelerators.iter().any(|one| moved.contains_key(one));
            prop_assert_eq!(found.exchanged(&taken(accelerators)), changes.then(|| taken(&expected)));
        }
    }
}
