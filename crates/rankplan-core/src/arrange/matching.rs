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
        .filter(|&other| {
            problem.rank_class[other as usize] == class && pinned[other as usize].is_none() && other != rank
        })
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
