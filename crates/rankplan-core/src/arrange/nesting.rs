//! Node ranks that must share a domain, level by level, and what every arrangement that keeps them together costs at least.
//!
//! A set that shares a domain shares every outer one. So the sets of a level, merged where they overlap, are split further at
//! the next level: a forest, which has to fit into the tree of domains.

use std::collections::HashSet;

use crate::arrange::demand::Bond;
use crate::arrange::filling::{Filled, Filling, Shares};
use crate::arrange::objective::{Assignment, Cost, MOVED, Problem};

/// The pieces of a plan at every level: node ranks that must share a domain there.
pub(crate) struct Nesting {
    /// By level and node rank, the first node rank of its piece.
    pub first_of: Vec<Vec<u32>>,
    /// By level, the units that a domain takes: the size of its pieces if all have the same, else the unit of the next level.
    units: Vec<u32>,
    /// The nodes in use of each innermost domain if all nodes with hardware that some node rank needs are alike and no node rank
    /// is fixed; `None` if not even then all pieces fit.
    pub filled: Option<Filled>,
    /// A lower bound of the cost of every arrangement.
    pub bound: Cost,
}

impl Nesting {
    pub fn of(problem: &Problem) -> Self {
        let first_of = pieces(problem);
        let ranks: Vec<u32> = problem.needed().collect();
        let (units, _) = units(&first_of, &ranks);
        let mut nesting = Nesting { first_of, units, filled: None, bound: Vec::new() };
        let (free, caps) = (free_nodes(problem), problem.caps.clone());
        nesting.filled = nesting.fill(problem, &ranks, &nesting.units, &free, &caps);
        nesting.bound = nesting.bound(problem, &free);
        nesting
    }

    /// The nodes in use of each innermost domain, of which these are free, if these node ranks are alike.
    fn fill(&self, problem: &Problem, ranks: &[u32], units: &[u32], free: &[u32], caps: &[Vec<u32>]) -> Option<Filled> {
        let (domains, segment, nodes) = (&problem.domains, problem.segment, ranks.len() as u32);
        let filling = Filling { domains, units, nodes, free, segment, caps, shares: None };
        let all = |set: &&Bond| {
            members(problem, set) as usize == ranks.len()
                && ranks.iter().all(|rank| set.ranks.binary_search(rank).is_ok())
        };
        let outer = problem.preferred.iter().filter(all).map(|set| set.level + 1).max().unwrap_or(0);
        match problem.balanced.iter().find(all) {
            Some(set) => filling.balanced(set.level, outer),
            None => filling.fill(),
        }
    }

    /// A lower bound of the cost: only the sets of node ranks that are larger than any domain cross, sets use as few domains as
    /// have room for them, and all together the fewest that hold all.
    fn bound(&self, problem: &Problem, free: &[u32]) -> Cost {
        let mut cost = problem.free_of_cost();
        for rank in problem.needed().filter(|&rank| problem.old.get(rank as usize) == Some(&None)) {
            cost[MOVED] += i64::from(problem.demand.processes[rank as usize]);
            cost[MOVED + 1] += i64::from(problem.demand.visitors[rank as usize]);
        }
        let domains = &problem.domains;
        for level in 0..domains.levels() {
            let largest = (0..domains.count(level)).map(|domain| domains.size(level, domain)).max().unwrap_or(0);
            for edge in problem.demand.edges.iter().filter(|edge| edge.ranks.len() > largest as usize) {
                cost[problem.crossings_at(level, edge.class)] += i64::from(edge.groups);
            }
        }
        let all: Vec<u32> = (0..domains.leaves()).map(|leaf| problem.leaf_size(leaf)).collect();
        let Some(filled) = &self.filled else {
            // Nothing is known of shares and whole segments if a rule is broken: they are at their best.
            cost[0] = 1;
            for (index, set) in problem.balanced.iter().enumerate() {
                cost[problem.shares_at(index)] = -i64::from(members(problem, set));
            }
            if let Some(segments) = cost.last_mut() {
                *segments = -problem.whole_segments(&all);
            }
            return cost;
        };
        let needed = problem.needed().count() as u32;
        let units = vec![1; domains.levels()];
        let alone =
            Filling { domains, units: &units, nodes: needed, free, segment: 1, caps: &problem.caps, shares: None };
        let room = if problem.preferred.is_empty() && problem.balanced.is_empty() { Vec::new() } else { alone.room() };
        for set in &problem.preferred {
            let nodes = members(problem, set);
            for level in 0..=set.level {
                let fewest = if nodes == needed { filled.least[level] } else { fewest(&room[level], nodes) };
                cost[problem.preferred_at(level)] += (fewest - 1).max(0);
            }
        }
        for (index, set) in problem.balanced.iter().enumerate() {
            let nodes = members(problem, set);
            let alike = filled.shares.filter(|shares| nodes == needed && shares.level == set.level);
            let shares = alike.unwrap_or_else(|| Shares::of(set.level, &room[set.level], nodes, 1));
            let at = problem.shares_at(index);
            cost[at] = -i64::from(shares.least);
            cost[at + 1] = i64::from(shares.count);
            cost[at + 2] = i64::from(shares.most);
        }
        cost[problem.used_at(0)..].copy_from_slice(&filled.least);
        if let Some(segments) = cost.last_mut() {
            *segments -= problem.whole_segments(&all);
        }
        cost
    }

    /// By level and domain, the nodes that can be used: if `whole`, in units of the pieces.
    pub fn room(problem: &Problem, whole: bool) -> Vec<Vec<u32>> {
        let nesting = Nesting::of(problem);
        let domains = &problem.domains;
        let (ones, free) = (vec![1; domains.levels()], free_nodes(problem));
        let units = if whole { &nesting.units } else { &ones };
        Filling { domains, units, nodes: 0, free: &free, segment: 1, caps: &problem.caps, shares: None }.room()
    }

    /// Whether an arrangement of this cost prefers, spreads or fills less than possible, as far as known.
    pub fn fills_more(&self, problem: &Problem, cost: &Cost) -> bool {
        let Some(filled) = &self.filled else { return false };
        let end = if filled.reached { problem.unused_at(problem.domains.levels()) } else { problem.unused_at(0) };
        let preferred = problem.preferred_at(0)..problem.crossings_at(0, 0);
        cost[preferred.clone()] > self.bound[preferred]
            || cost[problem.shares_at(0)..end] > self.bound[problem.shares_at(0)..end]
    }

    /// The node ranks, pieces one after the other, on as few nodes of each innermost domain as possible: the balanced sets, then
    /// all others.
    pub fn dealt(&self, problem: &Problem) -> Option<Assignment> {
        let mut ranks: Vec<u32> = problem.needed().collect();
        ranks.sort_by(|&a, &b| {
            let keys = |rank: u32| self.first_of.iter().map(move |first_of| first_of[rank as usize]);
            keys(a).cmp(keys(b)).then(a.cmp(&b))
        });
        let (mut free, mut caps) = (free_nodes(problem), problem.caps.clone());
        let mut nodes = vec![None; problem.rank_class.len()];
        let mut taken = vec![false; problem.domains.nodes() as usize];
        for part in parts(problem, &ranks) {
            let (units, even) = units(&self.first_of, &part);
            if !even {
                return None;
            }
            let filled = self.fill(problem, &part, &units, &free, &caps)?;
            let mut left = filled.nodes.clone();
            let mut part = part.into_iter().peekable();
            for &node in problem.domains.order().iter().filter(|node| !taken[**node as usize]).collect::<Vec<_>>() {
                let leaf = problem.domains.leaf(node) as usize;
                if let Some(rank) = part.next_if(|&rank| left[leaf] > 0 && problem.fits(rank, node)) {
                    nodes[rank as usize] = Some(node);
                    taken[node as usize] = true;
                    left[leaf] -= 1;
                    free[leaf] -= 1;
                    for (level, caps) in caps.iter_mut().enumerate().filter(|(_, caps)| !caps.is_empty()) {
                        caps[problem.domains.of(level, node) as usize] -= 1;
                    }
                }
            }
            part.next().is_none().then_some(())?;
        }
        Some(nodes)
    }
}

/// By level and node rank, the first node rank of those with which it must share a domain.
fn pieces(problem: &Problem) -> Vec<Vec<u32>> {
    let mut up: Vec<u32> = (0..problem.rank_class.len() as u32).collect();
    let mut found = vec![Vec::new(); problem.domains.levels()];
    for (level, found) in found.iter_mut().enumerate().rev() {
        for bond in problem.bonds.iter().filter(|bond| bond.level == level) {
            for pair in bond.ranks.windows(2) {
                let (one, other) = (find(&mut up, pair[0]), find(&mut up, pair[1]));
                // The smaller number stays on top.
                up[one.max(other) as usize] = one.min(other);
            }
        }
        *found = (0..up.len() as u32).map(|rank| find(&mut up, rank)).collect();
    }
    found
}

/// By level, the size of the pieces of these node ranks, or of the next level if they differ; and whether none differ.
fn units(first_of: &[Vec<u32>], ranks: &[u32]) -> (Vec<u32>, bool) {
    let (mut units, mut even, mut unit) = (vec![1; first_of.len()], true, 1);
    for (units, first_of) in units.iter_mut().zip(first_of).rev() {
        let mut sizes = vec![0_u32; first_of.len()];
        ranks.iter().for_each(|&rank| sizes[first_of[rank as usize] as usize] += 1);
        let mut sizes = sizes.into_iter().filter(|&size| size > 0);
        let first = sizes.next().unwrap_or(1);
        if sizes.all(|size| size == first) {
            unit = first;
        } else {
            even = false;
        }
        *units = unit;
    }
    (units, even)
}

/// The node ranks in parts: each balanced set that shares none with those before it, then all others.
fn parts(problem: &Problem, ranks: &[u32]) -> Vec<Vec<u32>> {
    let mut part_of = vec![0_usize; problem.rank_class.len()];
    for (number, set) in (1..).zip(&problem.balanced) {
        if set.ranks.iter().all(|&rank| part_of[rank as usize] == 0) {
            set.ranks.iter().for_each(|&rank| part_of[rank as usize] = number);
        }
    }
    let others = problem.balanced.len() + 1;
    let mut parts = vec![Vec::new(); others];
    for &rank in ranks {
        parts[part_of[rank as usize].checked_sub(1).unwrap_or(others - 1)].push(rank);
    }
    parts.retain(|part| !part.is_empty());
    parts
}

/// By innermost domain, the nodes with hardware that some node rank needs.
fn free_nodes(problem: &Problem) -> Vec<u32> {
    let classes: HashSet<u32> = problem.rank_class.iter().flatten().copied().collect();
    let mut free = vec![0; problem.domains.leaves() as usize];
    for (node, class) in (0..).zip(&problem.node_class) {
        free[problem.domains.leaf(node) as usize] += u32::from(classes.contains(class));
    }
    free
}

/// The number of node ranks of a set that get a node.
fn members(problem: &Problem, set: &Bond) -> u32 {
    set.ranks.iter().filter(|&&rank| problem.rank_class[rank as usize].is_some()).count() as u32
}

/// The fewest domains with this room that hold so many nodes.
fn fewest(room: &[u32], nodes: u32) -> i64 {
    let mut room = room.to_vec();
    room.sort_unstable_by_key(|&room| std::cmp::Reverse(room));
    let mut held = 0;
    1 + room
        .iter()
        .take_while(|&&room| {
            held += room;
            held < nodes
        })
        .count() as i64
}

fn find(up: &mut [u32], mut at: u32) -> u32 {
    while up[at as usize] != at {
        up[at as usize] = up[up[at as usize] as usize];
        at = up[at as usize];
    }
    at
}

#[cfg(test)]
mod tests {
    #![allow(clippy::expect_used, reason = "a test that expects too much fails, as it should")]

    use std::collections::{BTreeMap, BTreeSet};

    use proptest::prelude::*;

    use crate::arrange::demand::{Bond, Demand, Edge};
    use crate::arrange::hierarchy::Hierarchy;
    use crate::arrange::nesting::{Nesting, parts};
    use crate::arrange::objective::{Assignment, Cost, MOVED, Problem};

    /// The level of a rule, and its node ranks: some of them, or all.
    type Set = (usize, BTreeSet<u32>, bool);

    /// Up to seven nodes in two levels, and node ranks with rules, of which none is fixed.
    fn problems() -> impl Strategy<Value = Problem> {
        let nodes = prop::collection::vec((0..3_u32, 0..3_u32, prop::bool::weighted(0.15)), 2..7);
        let classes = prop::collection::vec(prop::option::weighted(0.9, prop::bool::weighted(0.1)), 1..6);
        let set = || (0..2_usize, prop::collection::btree_set(0..5_u32, 1..5), any::<bool>());
        let sets = || prop_oneof![1 => Just(Vec::new()), 1 => prop::collection::vec(set(), 1..3)];
        let edges = prop::collection::vec((0..4_usize, 1..3_u32, prop::collection::btree_set(0..5_u32, 2..5)), 0..3);
        let caps =
            prop_oneof![3 => Just(Vec::new()), 1 => prop::collection::vec(prop::collection::vec(0..4_u32, 7), 2)];
        (nodes, classes, (sets(), sets(), sets()), edges, caps, 1..4_u32).prop_map(
            |(nodes, classes, (bonds, preferred, balanced), edges, caps, segment)| {
                let ranks = classes.len() as u32;
                let bond = |(level, set, all): Set| {
                    let chosen = |rank: &u32| all || set.contains(rank);
                    Bond { level, ranks: (0..ranks).filter(chosen).collect(), source: 0 }
                };
                let bonded = |(level, set, _): Set| Bond {
                    level,
                    ranks: set.into_iter().filter(|&rank| rank < ranks && classes[rank as usize].is_some()).collect(),
                    source: 0,
                };
                let edges = edges.into_iter().map(|(class, groups, set)| Edge {
                    class,
                    groups,
                    ranks: set.into_iter().filter(|&rank| rank < ranks && classes[rank as usize].is_some()).collect(),
                });
                let labels = [nodes.iter().map(|node| node.0).collect(), nodes.iter().map(|node| node.1).collect()];
                // Rules and groups are about node ranks that get nodes.
                let some = |set: &Bond| set.ranks.iter().any(|&rank| classes[rank as usize].is_some());
                Problem {
                    domains: Hierarchy::new(nodes.len() as u32, &labels).expect("a label per node"),
                    node_class: nodes.iter().map(|node| node.2.into()).collect(),
                    rank_class: classes.iter().map(|class| class.map(u32::from)).collect(),
                    unfit: BTreeMap::new(),
                    demand: Demand {
                        edges: edges.filter(|edge| edge.ranks.len() > 1).collect(),
                        processes: vec![1; ranks as usize],
                        visitors: vec![0; ranks as usize],
                    },
                    bonds: bonds.into_iter().map(bonded).collect(),
                    preferred: preferred.into_iter().map(bond).filter(some).collect(),
                    balanced: balanced.into_iter().map(bond).filter(some).collect(),
                    caps,
                    pinned: vec![None; ranks as usize],
                    old: Vec::new(),
                    segment,
                }
            },
        )
    }

    /// Node ranks that are alike, and rules about all of them together.
    fn alike() -> impl Strategy<Value = Problem> {
        problems().prop_map(|mut problem| {
            let ranks: Box<[u32]> = (0..problem.rank_class.len() as u32).collect();
            problem.rank_class.fill(Some(0));
            problem.demand.edges.clear();
            problem.bonds.clear();
            problem.balanced.truncate(1);
            for set in problem.preferred.iter_mut().chain(&mut problem.balanced) {
                set.ranks.clone_from(&ranks);
            }
            problem
        })
    }

    /// Node ranks without rules on domains of these sizes.
    fn plain(sizes: &[u32], ranks: u32) -> Problem {
        let inner: Vec<u32> = (0..).zip(sizes).flat_map(|(leaf, &nodes)| vec![leaf; nodes as usize]).collect();
        Problem {
            domains: Hierarchy::new(inner.len() as u32, std::slice::from_ref(&inner)).expect("a label per node"),
            node_class: vec![0; inner.len()],
            rank_class: vec![Some(0); ranks as usize],
            unfit: BTreeMap::new(),
            demand: Demand { processes: vec![1; ranks as usize], visitors: vec![0; ranks as usize], edges: Vec::new() },
            bonds: Vec::new(),
            preferred: Vec::new(),
            balanced: Vec::new(),
            caps: Vec::new(),
            pinned: vec![None; ranks as usize],
            old: Vec::new(),
            segment: 1,
        }
    }

    fn set(ranks: &[u32]) -> Bond {
        Bond { level: 0, ranks: ranks.into(), source: 0 }
    }

    /// The least cost of all arrangements: every one is tried.
    fn least(problem: &Problem, nodes: &mut Assignment, rank: usize) -> Option<Cost> {
        if rank == nodes.len() {
            return Some(problem.cost(nodes));
        }
        if problem.rank_class[rank].is_none() {
            return least(problem, nodes, rank + 1);
        }
        let mut best: Option<Cost> = None;
        for node in 0..problem.domains.nodes() {
            if problem.fits(rank as u32, node) && !nodes.contains(&Some(node)) {
                nodes[rank] = Some(node);
                let found = least(problem, nodes, rank + 1);
                nodes[rank] = None;
                best = best.into_iter().chain(found).min();
            }
        }
        best
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 500, failure_persistence: None, ..ProptestConfig::default() })]

        /// No arrangement costs less than the bound, and pieces that are dealt are within caps.
        #[test]
        fn no_arrangement_costs_less_than_the_bound(problem in problems()) {
            prop_assume!(problem.needed().next().is_some());
            let mut nodes = vec![None; problem.rank_class.len()];
            let Some(least) = least(&problem, &mut nodes, 0) else { return Ok(()) };
            let nesting = Nesting::of(&problem);
            prop_assert!(nesting.bound <= least, "{:?} {:?}", nesting.bound, least);
            if let Some(dealt) = nesting.dealt(&problem) {
                let bonded = problem.bonds.iter().any(|bond| problem.crosses(&dealt, &bond.ranks, bond.level));
                prop_assert!(bonded || problem.cost(&dealt)[0] == 0);
            }
        }

        /// Node ranks that are alike have an arrangement that reaches the bound: the one that is dealt.
        #[test]
        fn one_arrangement_of_like_node_ranks_reaches_the_bound(problem in alike()) {
            let mut nodes = vec![None; problem.rank_class.len()];
            let Some(least) = least(&problem, &mut nodes, 0).filter(|least| least[0] == 0) else { return Ok(()) };
            let nesting = Nesting::of(&problem);
            prop_assert_eq!(&nesting.bound, &least);
            let dealt = nesting.dealt(&problem).expect("all node ranks are alike");
            prop_assert_eq!(&problem.cost(&dealt), &least);
            for worse in 0..least.len() {
                let mut cost = least.clone();
                cost[worse] += 1;
                let is_filling = worse >= problem.preferred_at(0) && worse + 1 < least.len()
                    && !(problem.crossings_at(0, 0)..problem.shares_at(0)).contains(&worse);
                prop_assert_eq!(nesting.fills_more(&problem, &cost), is_filling, "{}", worse);
            }
            prop_assert!(!nesting.fills_more(&problem, &least));
        }

        /// Pieces of one size on the fewest nodes: one after the other by their first node ranks, each whole and in order.
        #[test]
        fn pieces_of_one_size_are_dealt_one_after_the_other(
            sizes in prop::collection::vec(1..7_u32, 1..5),
            size in 1..4_u32,
            count in 1..5_u32,
            ranks in Just((0..12).collect::<Vec<u32>>()).prop_shuffle(),
        ) {
            let whole: u32 = sizes.iter().map(|nodes| nodes / size).sum();
            prop_assume!(size * count <= sizes.iter().sum());
            let ranks: Vec<u32> = ranks.into_iter().filter(|&rank| rank < size * count).collect();
            let mut pieces: Vec<Vec<u32>> = ranks.chunks(size as usize).map(<[u32]>::to_vec).collect();
            pieces.iter_mut().for_each(|piece| piece.sort_unstable());
            pieces.sort_unstable();
            let bonds = pieces.iter().map(|piece| set(piece)).collect();
            let problem = Problem { bonds, ..plain(&sizes, size * count) };
            let nesting = Nesting::of(&problem);
            let dealt = nesting.dealt(&problem);
            prop_assert_eq!(dealt.is_some(), whole >= count);
            prop_assert_eq!(nesting.bound[0], i64::from(whole < count));
            if let Some(dealt) = dealt {
                prop_assert_eq!(&problem.cost(&dealt), &nesting.bound);
                let nodes: Vec<Option<u32>> = pieces.concat().iter().map(|&rank| dealt[rank as usize]).collect();
                prop_assert!(nodes.is_sorted());
            }
        }
    }

    /// Groups larger than any domain cross it, and node ranks whose nodes are gone move: no more is certain, and no less.
    #[test]
    fn the_bound_has_moves_and_crossings_that_cannot_be_avoided() {
        let mut problem = plain(&[2, 3, 1], 4);
        let edge = |class, groups, ranks: &[u32]| Edge { class, groups, ranks: ranks.into() };
        problem.demand.edges = vec![edge(0, 5, &[0, 1, 2, 3]), edge(0, 7, &[0, 1, 2]), edge(2, 11, &[0, 1, 2, 3])];
        problem.demand.processes = vec![1, 2, 4, 8];
        problem.demand.visitors = vec![16, 32, 64, 128];
        problem.old = vec![None, Some(2), Some(3), None];
        let mut expected = vec![0; problem.free_of_cost().len()];
        expected[MOVED..MOVED + 2].copy_from_slice(&[9, 144]);
        expected[problem.crossings_at(0, 0)] = 5;
        expected[problem.crossings_at(0, 2)] = 11;
        expected[problem.used_at(0)] = 2;
        let bound = Nesting::of(&problem).bound;
        assert_eq!(bound[..problem.unused_at(0)], expected[..problem.unused_at(0)]);
        let least = least(&problem, &mut vec![None; 4], 0).expect("more nodes than node ranks");
        assert_eq!(bound, least);
    }

    #[test]
    fn pieces_of_two_sizes_are_not_dealt() {
        let problem = Problem { bonds: vec![set(&[0, 1])], ..plain(&[3], 3) };
        assert_eq!(Nesting::of(&problem).dealt(&problem), None);
    }

    #[test]
    fn balanced_sets_are_parts_unless_they_share_node_ranks() {
        let balanced = vec![set(&[4, 5]), set(&[1, 2]), set(&[0, 1])];
        let problem = Problem { balanced, ..plain(&[6], 6) };
        assert_eq!(parts(&problem, &[0, 1, 2, 3, 4, 5]), [vec![4, 5], vec![1, 2], vec![0, 3]]);
    }

    /// Each is balanced over the domains of its own level, although the other one has as many node ranks.
    #[test]
    fn sets_of_one_size_are_balanced_each_at_its_own_level() {
        let labels = [vec![0, 0, 0, 0, 1, 1, 1, 1, 1, 1], vec![0, 0, 0, 0, 0, 0, 0, 1, 1, 1]];
        let inner = Bond { level: 1, ..set(&[4, 5, 6, 7]) };
        let mut problem = Problem { balanced: vec![set(&[0, 1, 2, 3]), inner], ..plain(&[10], 8) };
        problem.domains = Hierarchy::new(10, &labels).expect("a label per node");
        let dealt = Nesting::of(&problem).dealt(&problem).expect("node ranks that are alike");
        assert_eq!(dealt, [0, 1, 2, 3, 4, 5, 7, 8].map(Some));
    }

    #[test]
    fn room_is_counted_in_whole_pieces_if_it_shall_be() {
        let problem = Problem { bonds: vec![set(&[0, 1]), set(&[2, 3])], ..plain(&[3, 2, 1], 4) };
        assert_eq!(Nesting::room(&problem, true), [[2, 2, 0]]);
        assert_eq!(Nesting::room(&problem, false), [[3, 2, 1]]);
    }
}
