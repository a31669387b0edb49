//! Which node ranks can have nodes at the same time: a maximum matching.
//!
//! Without broken accelerators it only counts. A node with some of them suits the node ranks that need none of these.

use std::collections::VecDeque;

use crate::arrange::objective::{Assignment, Problem};

/// A class of hardware of which there are too few nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shortage {
    /// The class.
    pub class: u32,
    /// The nodes that the node ranks need.
    pub needed: u32,
    /// The nodes that exist.
    pub found: u32,
}

/// A node for every node rank, whatever it costs. Node ranks that have one keep it, unless another one is then without; the
/// `pinned` ones always do. Nodes without broken accelerators are taken first.
///
/// # Errors
/// The classes of hardware of which there are too few nodes.
pub(crate) fn matched(problem: &Problem, pinned: &Assignment, start: &Assignment) -> Result<Assignment, Vec<Shortage>> {
    let mut nodes = start.clone();
    let mut taken = vec![false; problem.domains.nodes() as usize];
    nodes.iter().flatten().for_each(|&node| taken[node as usize] = true);
    let classes =
        problem.node_class.iter().chain(problem.rank_class.iter().flatten()).max().map_or(0, |&last| last + 1);
    let mut whole = vec![Vec::new(); classes as usize];
    let mut broken: Vec<u32> = Vec::new();
    for &node in problem.domains.order().iter().rev().filter(|&&node| !taken[node as usize]) {
        let list = if problem.unfit.contains_key(&node) {
            &mut broken
        } else {
            &mut whole[problem.node_class[node as usize] as usize]
        };
        list.push(node);
    }
    let mut short = vec![(0_u32, 0_u32); classes as usize];
    for rank in problem.needed() {
        let Some(class) = problem.rank_class[rank as usize] else { continue };
        short[class as usize].0 += 1;
        let found = nodes[rank as usize].is_some()
            || augmented(problem, pinned, &mut nodes, rank, &mut whole[class as usize], &mut broken);
        short[class as usize].1 += u32::from(found);
    }
    let short: Vec<Shortage> = (0..)
        .zip(short)
        .filter(|(_, (needed, found))| needed > found)
        .map(|(class, (needed, found))| Shortage { class, needed, found })
        .collect();
    if short.is_empty() { Ok(nodes) } else { Err(short) }
}

/// Find a node for a node rank; others may move on, each to a node that suits it. Return whether there is one.
fn augmented(
    problem: &Problem,
    pinned: &Assignment,
    nodes: &mut Assignment,
    rank: u32,
    whole: &mut Vec<u32>,
    broken: &mut Vec<u32>,
) -> bool {
    if let Some(node) = whole.pop() {
        nodes[rank as usize] = Some(node);
        return true;
    }
    if problem.unfit.is_empty() {
        return false;
    }
    let class = problem.rank_class[rank as usize];
    let mut others: Vec<u32> = problem
        .needed()
        .filter(|&other| problem.rank_class[other as usize] == class && pinned[other as usize].is_none())
        .collect();
    // By node rank that is reached, the one that wants its node.
    let mut wanted_by = vec![None; nodes.len()];
    let mut queue = VecDeque::from([rank]);
    while let Some(at) = queue.pop_front() {
        if let Some(index) = broken.iter().rposition(|&node| problem.fits(at, node)) {
            let (mut at, mut node) = (at, broken.remove(index));
            loop {
                let left = nodes[at as usize].replace(node);
                let (Some(next), Some(left)) = (wanted_by[at as usize], left) else { return true };
                (at, node) = (next, left);
            }
        }
        others.retain(|&other| {
            let reached = nodes[other as usize].is_some_and(|node| problem.fits(at, node));
            if reached {
                wanted_by[other as usize] = Some(at);
                queue.push_back(other);
            }
            !reached
        });
    }
    false
}

#[cfg(test)]
mod tests {
    #![allow(clippy::expect_used, reason = "a test that expects too much fails, as it should")]

    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use crate::arrange::demand::Demand;
    use crate::arrange::hierarchy::Hierarchy;
    use crate::arrange::matching::{Shortage, matched};
    use crate::arrange::objective::{Assignment, Problem};
    use crate::rank_set::RankSet;

    fn problem(
        labels: Vec<u32>,
        node_class: Vec<u32>,
        rank_class: Vec<Option<u32>>,
        unfit: BTreeMap<u32, RankSet>,
    ) -> Problem {
        Problem {
            domains: Hierarchy::new(labels.len() as u32, &[labels]).expect("a label per node"),
            node_class,
            demand: Demand::default(),
            bonds: Vec::new(),
            preferred: Vec::new(),
            balanced: Vec::new(),
            caps: Vec::new(),
            pinned: vec![None; rank_class.len()],
            old: Vec::new(),
            segment: 1,
            rank_class,
            unfit,
        }
    }

    /// The most node ranks of a class that can have nodes at the same time: every choice is tried.
    fn most(problem: &Problem, class: u32, nodes: &mut Assignment, rank: usize) -> u32 {
        if rank == nodes.len() {
            return problem
                .needed()
                .filter(|&rank| problem.rank_class[rank as usize] == Some(class) && nodes[rank as usize].is_some())
                .count() as u32;
        }
        let mut best = most(problem, class, nodes, rank + 1);
        if problem.rank_class[rank] == Some(class) && nodes[rank].is_none() {
            for node in 0..problem.domains.nodes() {
                if problem.fits(rank as u32, node) && !nodes.contains(&Some(node)) {
                    nodes[rank] = Some(node);
                    best = best.max(most(problem, class, nodes, rank + 1));
                    nodes[rank] = None;
                }
            }
        }
        best
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 1500, failure_persistence: None, ..ProptestConfig::default() })]

        /// As many node ranks as possible get nodes: pinned ones keep theirs, and others theirs unless somebody else needs it.
        #[test]
        fn as_many_node_ranks_as_possible_get_nodes(
            nodes in prop::collection::vec((0..3_u32, prop_oneof![5 => Just(0), 1 => Just(1)]), 1..7),
            ranks in prop::collection::vec(prop::option::weighted(0.9, prop::bool::weighted(0.15)), 1..6),
            broken in prop::collection::btree_map(0..7_u32, prop::collection::vec(0..6_u32, 1..5), 0..7),
            starts in prop::collection::vec(prop::option::weighted(0.5, 0..7_u32), 6),
            are_pinned in prop::collection::vec(any::<bool>(), 6),
        ) {
            let (labels, classes): (Vec<u32>, Vec<u32>) = nodes.into_iter().unzip();
            let unfit = broken.into_iter().map(|(node, ranks)| (node, ranks.into_iter().collect())).collect();
            let problem = problem(labels, classes, ranks.iter().map(|class| class.map(u32::from)).collect(), unfit);
            let mut start: Assignment = vec![None; ranks.len()];
            for rank in problem.needed() {
                let node = starts[rank as usize].filter(|&node| node < problem.domains.nodes());
                start[rank as usize] = node.filter(|&node| problem.fits(rank, node) && !start.contains(&Some(node)));
            }
            let pinned: Assignment = start.iter().zip(&are_pinned).map(|(node, &is)| node.filter(|_| is)).collect();
            let short: Vec<Shortage> = (0..2).filter_map(|class| {
                let needed = problem.rank_class.iter().filter(|&&other| other == Some(class)).count() as u32;
                let found = most(&problem, class, &mut pinned.clone(), 0);
                (found < needed).then_some(Shortage { class, needed, found })
            }).collect();
            match matched(&problem, &pinned, &start) {
                Err(found) => prop_assert_eq!(found, short),
                Ok(found) => {
                    prop_assert!(short.is_empty());
                    let mut seen = Vec::new();
                    for (rank, node) in (0..).zip(&found) {
                        prop_assert_eq!(node.is_some(), problem.rank_class[rank as usize].is_some());
                        let Some(node) = *node else { continue };
                        prop_assert!(problem.fits(rank, node) && !seen.contains(&node));
                        prop_assert!(pinned[rank as usize].is_none_or(|own| own == node));
                        seen.push(node);
                    }
                    // A node that is broken is only used if none of its class is left that is not, and nobody leaves
                    // a node for nothing.
                    let left = |class: u32| (0..problem.domains.nodes()).any(|node| {
                        problem.node_class[node as usize] == class && !problem.unfit.contains_key(&node) && !seen.contains(&node)
                    });
                    for rank in problem.needed() {
                        let class = problem.rank_class[rank as usize].expect("it needs a node");
                        let node = found[rank as usize].expect("it has a node");
                        if start[rank as usize] != Some(node) {
                            prop_assert!(!problem.unfit.contains_key(&node) || !left(class));
                        }
                        if let Some(before) = start[rank as usize].filter(|&before| before != node) {
                            prop_assert!(seen.contains(&before));
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn nodes_are_taken_in_the_order_of_their_domains_those_with_broken_accelerators_last() {
        let unfit = BTreeMap::from([
            (1, [9].into_iter().collect()),
            (2, [9].into_iter().collect()),
            (4, [9].into_iter().collect()),
        ]);
        let problem = problem(vec![1, 0, 1, 0, 0], vec![0; 5], vec![Some(0); 5], unfit);
        let none = vec![None; 5];
        let found = matched(&problem, &none, &none).expect("a node for each");
        assert_eq!(found, [Some(3), Some(0), Some(1), Some(4), Some(2)]);
    }
}
