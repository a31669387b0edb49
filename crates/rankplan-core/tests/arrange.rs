//! Laws of arrangements that are too large for a search; small ones are compared with brute force in
//! `tests/arranging/test_arrange.py`.

#![allow(clippy::expect_used, reason = "a test that expects too much fails, as it should")]

use std::collections::BTreeMap;

use proptest::prelude::*;
use rankplan_core::arrange::demand::{Bond, Demand};
use rankplan_core::arrange::hierarchy::Hierarchy;
use rankplan_core::arrange::objective::Problem;
use rankplan_core::arrange::{arrange, bound};
use rankplan_core::{Layout, Parallel, Rule, Slots, Table, apply};
use rankplan_core::{NodeRank, ProcessRank, RankMap};

use crate::common::pool;

mod common;

/// One process on each of two accelerators per node.
fn table(nodes: u32) -> Table {
    let map = RankMap::parse(&format!("0-{}", 2 * nodes - 1), None).expect("a map");
    apply(Rule::Map(&map), &pool(&vec![2; nodes as usize])).expect("a table")
}

fn demand(nodes: u32, ep: u32) -> Demand {
    let table = table(nodes);
    let slots = Slots::of(&table);
    let layout = Layout::new(&Parallel { tp: 2, ep, ..Parallel::default() }, &slots).expect("sizes that divide");
    Demand::of(nodes, &[(&table, Some((&slots, &layout)))])
}

/// Nodes in blocks of domains of these sizes, in an order that depends on the seed.
fn shuffled(blocks: &[Vec<u32>], seed: u64) -> Vec<Vec<u32>> {
    let mut labels = Vec::new();
    for (block, domains) in (0..).zip(blocks) {
        for (domain, &size) in (0..).zip(domains) {
            labels.extend(std::iter::repeat_n((block, domain), size as usize));
        }
    }
    let key = |index: u64| index.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(seed).rotate_left(23);
    let mut order: Vec<usize> = (0..labels.len()).collect();
    order.sort_by_key(|&index| key(index as u64 ^ seed));
    vec![order.iter().map(|&index| labels[index].0).collect(), order.iter().map(|&index| labels[index].1).collect()]
}

fn problem(nodes: u32, labels: &[Vec<u32>], demand: Demand) -> Problem {
    let all = labels[0].len();
    Problem {
        domains: Hierarchy::new(all as u32, labels).expect("a label per node"),
        node_class: vec![0; all],
        rank_class: vec![Some(0); nodes as usize],
        unfit: BTreeMap::new(),
        demand,
        bonds: Vec::new(),
        preferred: Vec::new(),
        balanced: Vec::new(),
        caps: Vec::new(),
        pinned: vec![None; nodes as usize],
        old: Vec::new(),
        segment: 1,
    }
}

/// Blocks of domains with this many groups of nodes each and some nodes more.
fn blocks() -> impl Strategy<Value = Vec<Vec<(u32, u32)>>> {
    prop::collection::vec(prop::collection::vec((0..5_u32, 0..4_u32), 1..6), 1..6)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 80, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_expert_group_crosses_a_domain_if_whole_domains_hold_all(blocks in blocks(), group in 2..5_u32, seed: u64) {
        let held: u32 = blocks.iter().flatten().map(|&(groups, _)| groups).sum();
        prop_assume!(held > 0);
        let (nodes, with_rest) = (held * group, |&(groups, rest): &(u32, u32)| groups * group + rest % group);
        let sizes: Vec<Vec<u32>> = blocks.iter().map(|domains| domains.iter().map(with_rest).collect()).collect();
        // Data groups in one block would be worth a torn expert group: the outermost level comes first.
        let mut experts = demand(nodes, 2 * group);
        experts.edges.retain(|edge| edge.class == 1);
        let problem = problem(nodes, &shuffled(&sizes, seed), experts);
        let found = arrange(&problem).expect("enough nodes");
        for level in 0..2 {
            prop_assert_eq!(found.cost[problem.crossings_at(level, 1)], 0);
        }
        prop_assert_eq!(&found.cost, &problem.cost(&found.nodes));
        prop_assert!(found.cost >= bound(&problem));
    }

    #[test]
    fn segments_fit_if_and_only_if_the_quotients_suffice(blocks in blocks(), size in 2..5_u32, more in 0..2_u32, seed: u64) {
        let sizes: Vec<Vec<u32>> = blocks.iter().map(|domains| domains.iter().map(|&(a, b)| a + b).collect()).collect();
        let whole: u32 = sizes.iter().flatten().map(|nodes| nodes / size).sum();
        let total: u32 = sizes.iter().flatten().sum();
        let segments = whole + more;
        prop_assume!(segments > 0 && segments * size <= total);
        let nodes = segments * size;
        let mut problem = problem(nodes, &shuffled(&sizes, seed), demand(nodes, 1));
        let of = |segment: u32| Bond { level: 1, ranks: (segment * size..(segment + 1) * size).collect(), source: 0 };
        problem.bonds = (0..segments).map(of).collect();
        problem.segment = size;
        let found = arrange(&problem).expect("enough nodes");
        prop_assert_eq!(found.broken.is_empty(), more == 0);
    }

    #[test]
    fn survivors_stay_if_the_spares_fit(blocks in blocks(), lost in 1..4_u32, seed: u64) {
        let sizes: Vec<Vec<u32>> = blocks.iter().map(|domains| domains.iter().map(|&(a, b)| a + b).collect()).collect();
        let total: u32 = sizes.iter().flatten().sum();
        prop_assume!(total > 2 * lost + 1);
        let nodes = (total - lost) / 2 * 2;
        let mut problem = problem(nodes, &shuffled(&sizes, seed), demand(nodes, 4));
        let before = arrange(&problem).expect("enough nodes").nodes;
        let gone: Vec<u32> = (0..lost).map(|index| index * (nodes / lost)).collect();
        problem.old = before.clone();
        for &rank in &gone {
            let node = problem.old[rank as usize].take().expect("a node");
            problem.node_class[node as usize] = 1;
        }
        let found = arrange(&problem).expect("enough spares");
        for rank in (0..nodes).filter(|rank| !gone.contains(rank)) {
            prop_assert_eq!(found.nodes[rank as usize], before[rank as usize]);
        }
        prop_assert_eq!(found.cost[1], i64::from(2 * lost));
    }
}

#[test]
fn domains_come_one_after_another_and_nodes_without_labels_last() {
    let labels = vec![vec![0, 0, 0, u32::MAX, 1, 1, u32::MAX]];
    assert_eq!(Hierarchy::new(7, &labels).expect("labels").order(), [0, 1, 2, 4, 5, 3, 6]);
    assert_eq!(Hierarchy::new(2, &labels).map_err(|fault| fault.code.slug()), Err("invalid-inventory"));
}

#[test]
fn processes_are_counted_on_their_node_ranks() {
    let found = demand(3, 1);
    assert_eq!((found.processes, found.visitors, found.edges.len()), (vec![2, 2, 2], vec![0, 0, 0], 1));
    assert_eq!(table(3).row(ProcessRank(5)).map(|row| row.cluster_node_rank), Some(NodeRank(2)));
}
