//! Whether sets of node ranks within sets fit into domains within domains: a search, domain by domain.

use std::collections::{HashMap, HashSet};

use crate::arrange::hierarchy::UNKNOWN;
use crate::arrange::objective::{Assignment, Problem};

/// Whether the pieces fit into the domains.
pub(crate) enum Fit {
    /// By node rank that is not fixed, its innermost domain, or [`UNKNOWN`].
    Found(Vec<u32>),
    /// No arrangement keeps all pieces together.
    Impossible,
    /// The search ended early.
    OutOfBudget,
}

/// The most pieces of a domain for which a search is tried: it goes one call deeper for each of them.
const MOST_SEARCHED: usize = 1_000;

/// Search for domains of all pieces, with these node ranks fixed: if those of a piece are in several domains, its other node
/// ranks are put in one of these. `first_of` has, by level and node rank, the first one of its
/// piece; `budget` limits the domains that are tried.
pub(crate) fn fitted(first_of: &[Vec<u32>], problem: &Problem, fixed: &Assignment, budget: u32) -> Fit {
    let mut search = Search::new(first_of, problem, fixed, budget);
    match search.fits(None) {
        Some(found) => {
            let mut leaves = vec![UNKNOWN; problem.rank_class.len()];
            found.into_iter().for_each(|(rank, leaf)| leaves[rank as usize] = leaf);
            Fit::Found(leaves)
        }
        None if search.budget == 0 => Fit::OutOfBudget,
        None => Fit::Impossible,
    }
}

/// Node ranks that must share a domain, without those that are fixed.
struct Piece {
    /// By class of hardware.
    need: Vec<u32>,
    size: u32,
    /// The domain of its fixed node ranks, or [`UNKNOWN`].
    label: u32,
    /// The same for pieces that can replace each other.
    shape: u32,
    /// The pieces of the next level, or node ranks.
    parts: Vec<u32>,
}

/// Pieces in one domain, by level, domain and shapes.
type State = (usize, u32, Vec<u32>);

struct Search<'a> {
    problem: &'a Problem,
    pieces: Vec<Vec<Piece>>,
    /// By level, domain and class, the nodes that are free.
    room: Vec<Vec<Vec<u32>>>,
    /// By level and domain, the most nodes that may still be used.
    most: Vec<Vec<u32>>,
    /// By level and domain; the same for domains that can replace each other.
    kinds: Vec<Vec<u32>>,
    known: HashMap<State, bool>,
    budget: u32,
}

impl<'a> Search<'a> {
    fn new(pieces_of: &[Vec<u32>], problem: &'a Problem, fixed: &Assignment, budget: u32) -> Self {
        let (domains, levels) = (&problem.domains, problem.domains.levels());
        let classes = problem.node_class.iter().chain(problem.rank_class.iter().flatten()).max().map_or(1, |&c| c + 1);
        let mut pieces: Vec<Vec<Piece>> = (0..levels).map(|_| Vec::new()).collect();
        let mut room = vec![Vec::new(); levels];
        let mut most = vec![Vec::new(); levels];
        let mut kinds = vec![Vec::new(); levels];
        let mut taken = vec![false; domains.nodes() as usize];
        fixed.iter().flatten().for_each(|&node| taken[node as usize] = true);
        let mut inner_of = vec![UNKNOWN; problem.rank_class.len()];
        for level in (0..levels).rev() {
            let first_of = &pieces_of[level];
            let mut at: HashMap<u32, usize> = HashMap::new();
            let mut labels: HashMap<u32, u32> = HashMap::new();
            for rank in problem.needed() {
                if let Some(node) = fixed[rank as usize] {
                    labels.insert(first_of[rank as usize], domains.of(level, node));
                }
            }
            let mut labelled = HashSet::new();
            for rank in problem.needed().filter(|&rank| fixed[rank as usize].is_none()) {
                let first = first_of[rank as usize];
                let found = &mut pieces[level];
                let index = *at.entry(first).or_insert_with(|| {
                    let label = labels.get(&first).copied().unwrap_or(UNKNOWN);
                    labelled.insert(label);
                    let need = vec![0; classes as usize];
                    found.push(Piece { need, size: 0, label, shape: 0, parts: Vec::new() });
                    found.len() - 1
                });
                let piece = &mut found[index];
                let part = if level + 1 == levels { rank } else { inner_of[rank as usize] };
                if piece.parts.last() != Some(&part) && !piece.parts.contains(&part) {
                    piece.parts.push(part);
                }
                piece.need[problem.rank_class[rank as usize].unwrap_or(0) as usize] += 1;
                piece.size += 1;
                inner_of[rank as usize] = index as u32;
            }
            let (these, inner) = pieces.split_at_mut(level + 1);
            let mut shapes = HashMap::new();
            for piece in &mut these[level] {
                let mut parts: Vec<u32> = inner
                    .first()
                    .map_or(Vec::new(), |inner| piece.parts.iter().map(|&at| inner[at as usize].shape).collect());
                parts.sort_unstable();
                let next = shapes.len() as u32;
                piece.shape = *shapes.entry((piece.need.clone(), piece.label, parts)).or_insert(next);
            }
            most[level] = (0..domains.count(level)).map(|domain| problem.cap(level, domain)).collect();
            for &node in fixed.iter().flatten() {
                let most = &mut most[level][domains.of(level, node) as usize];
                *most = most.saturating_sub(1);
            }
            room[level] = vec![vec![0; classes as usize]; domains.count(level) as usize];
            for node in (0..domains.nodes()).filter(|&node| !taken[node as usize]) {
                room[level][domains.of(level, node) as usize][problem.node_class[node as usize] as usize] += 1;
            }
            let mut known: HashMap<(Vec<u32>, Vec<u32>, u32, u32), u32> = HashMap::new();
            kinds[level] = (0..domains.count(level))
                .map(|domain| {
                    let mut parts: Vec<u32> = if level + 1 == levels {
                        Vec::new()
                    } else {
                        domains.inside(level, domain).map(|inner| kinds[level + 1][inner]).collect()
                    };
                    parts.sort_unstable();
                    let own = if labelled.contains(&domain) { domain } else { UNKNOWN };
                    let next = known.len() as u32;
                    let (room, most) = (room[level][domain as usize].clone(), most[level][domain as usize]);
                    *known.entry((room, parts, own, most)).or_insert(next)
                })
                .collect();
        }
        Search { problem, pieces, room, most, kinds, known: HashMap::new(), budget }
    }

    /// The innermost domain of each node rank if these pieces fit into a domain; without one, all of them into all domains.
    fn fits(&mut self, within: Option<(usize, u32, &[u32])>) -> Option<Vec<(u32, u32)>> {
        let levels = self.problem.domains.levels();
        let (level, domains, mut open) = match within {
            None if levels == 0 => return None,
            None => (0, 0..self.room[0].len(), (0..self.pieces[0].len() as u32).collect::<Vec<_>>()),
            Some((level, domain, pieces)) => {
                let parts = pieces.iter().flat_map(|&piece| self.pieces[level][piece as usize].parts.iter().copied());
                if level + 1 == levels {
                    return Some(parts.map(|rank| (rank, domain)).collect());
                }
                (level + 1, self.problem.domains.inside(level, domain), parts.collect())
            }
        };
        if open.len() > MOST_SEARCHED {
            self.budget = 0;
            return None;
        }
        let pieces = &self.pieces[level];
        open.sort_by_key(|&piece| {
            let piece = &pieces[piece as usize];
            (piece.label == UNKNOWN, std::cmp::Reverse(piece.size), piece.shape)
        });
        let mut inside = vec![Vec::new(); domains.len()];
        if !self.place(level, domains.start, &open, &mut inside, &mut HashSet::new()) {
            return None;
        }
        let mut found = Vec::new();
        for (domain, pieces) in domains.zip(&inside).filter(|(_, pieces)| !pieces.is_empty()) {
            found.extend(self.fits(Some((level, domain as u32, pieces)))?);
        }
        Some(found)
    }

    /// Place these pieces in sibling domains, of which `start` is the first; `inside` has the pieces that each has already.
    fn place(
        &mut self,
        level: usize,
        start: usize,
        open: &[u32],
        inside: &mut Vec<Vec<u32>>,
        failed: &mut HashSet<Vec<(u32, Vec<u32>)>>,
    ) -> bool {
        let Some((&piece, rest)) = open.split_first() else { return true };
        let mut state: Vec<_> = (0..inside.len()).map(|at| self.content(level, start + at, &inside[at])).collect();
        let mut order: Vec<usize> = (0..inside.len()).collect();
        // The fullest domain that has room comes first.
        order.sort_by_key(|&at| {
            let free: u32 = self.room[level][start + at].iter().sum();
            let used: u32 = inside[at].iter().map(|&piece| self.pieces[level][piece as usize].size).sum();
            (used == 0, free.saturating_sub(used))
        });
        let tried = state.clone();
        state.sort_unstable();
        if failed.contains(&state) {
            return false;
        }
        let mut seen = HashSet::new();
        for at in order {
            let label = self.pieces[level][piece as usize].label;
            if label != UNKNOWN && label as usize != start + at || !seen.insert(&tried[at]) {
                continue;
            }
            if self.budget == 0 {
                return false;
            }
            self.budget -= 1;
            inside[at].push(piece);
            if self.holds(level, start + at, &inside[at]) && self.place(level, start, rest, inside, failed) {
                return true;
            }
            inside[at].pop();
        }
        failed.insert(state);
        false
    }

    /// The kind of a domain and the shapes of the pieces in it.
    fn content(&self, level: usize, domain: usize, pieces: &[u32]) -> (u32, Vec<u32>) {
        let mut shapes: Vec<u32> = pieces.iter().map(|&piece| self.pieces[level][piece as usize].shape).collect();
        shapes.sort_unstable();
        (self.kinds[level][domain], shapes)
    }

    /// Whether a domain has room for these pieces.
    fn holds(&mut self, level: usize, domain: usize, pieces: &[u32]) -> bool {
        let sizes = pieces.iter().map(|&piece| self.pieces[level][piece as usize].size);
        if sizes.sum::<u32>() > self.most[level][domain] {
            return false;
        }
        for (class, &room) in self.room[level][domain].iter().enumerate() {
            let need = pieces.iter().map(|&piece| self.pieces[level][piece as usize].need[class]);
            if need.sum::<u32>() > room {
                return false;
            }
        }
        if level + 1 == self.problem.domains.levels() {
            return true;
        }
        let (kind, shapes) = self.content(level, domain, pieces);
        let state = (level, kind, shapes);
        if let Some(&fits) = self.known.get(&state) {
            return fits;
        }
        let fits = self.fits(Some((level, domain as u32, pieces))).is_some();
        if self.budget > 0 {
            self.known.insert(state, fits);
        }
        fits
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::expect_used, reason = "a test that expects too much fails, as it should")]

    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use crate::arrange::demand::Demand;
    use crate::arrange::fitting::{Fit, fitted};
    use crate::arrange::hierarchy::{Hierarchy, UNKNOWN};
    use crate::arrange::objective::{Assignment, Problem};

    /// Nodes by outer and inner label and class, and node ranks by outer and inner piece and class: what each needs.
    #[derive(Clone, Debug)]
    struct Case {
        nodes: Vec<(u32, u32, u32)>,
        ranks: Vec<(u32, u32, Option<u32>)>,
        caps: Vec<Vec<u32>>,
        fixed: Vec<usize>,
    }

    impl Case {
        fn problem(&self) -> Problem {
            let labels =
                [self.nodes.iter().map(|node| node.0).collect(), self.nodes.iter().map(|node| node.1).collect()];
            Problem {
                domains: Hierarchy::new(self.nodes.len() as u32, &labels).expect("a label per node"),
                node_class: self.nodes.iter().map(|node| node.2).collect(),
                rank_class: self.ranks.iter().map(|rank| rank.2).collect(),
                unfit: BTreeMap::new(),
                demand: Demand { edges: Vec::new(), processes: Vec::new(), visitors: Vec::new() },
                bonds: Vec::new(),
                preferred: Vec::new(),
                balanced: Vec::new(),
                caps: self.caps.clone(),
                pinned: vec![None; self.ranks.len()],
                old: Vec::new(),
                segment: 1,
            }
        }

        /// By level and node rank, the first node rank of its piece that needs a node.
        fn first_of(&self) -> Vec<Vec<u32>> {
            let first = |same: &dyn Fn(usize, usize) -> bool| -> Vec<u32> {
                (0..self.ranks.len())
                    .map(|rank| (0..rank).find(|&other| same(other, rank)).unwrap_or(rank) as u32)
                    .collect()
            };
            let needed = |rank: usize| self.ranks[rank].2.is_some();
            let outer = |one: usize, other: usize| needed(one) && self.ranks[one].0 == self.ranks[other].0;
            let inner = |one: usize, other: usize| outer(one, other) && self.ranks[one].1 == self.ranks[other].1;
            vec![first(&outer), first(&inner)]
        }

        /// The node ranks that are fixed, as far as their classes allow: each on the first free node of its own class.
        fn assignment(&self, problem: &Problem) -> Assignment {
            let mut nodes: Assignment = vec![None; self.ranks.len()];
            for &rank in self.fixed.iter().filter(|&&rank| rank < self.ranks.len()) {
                let free = (0..self.nodes.len() as u32)
                    .find(|&node| problem.fits(rank as u32, node) && !nodes.contains(&Some(node)));
                if nodes[rank].is_none() {
                    nodes[rank] = free;
                }
            }
            nodes
        }
    }

    /// Whether pieces are within domains, and domains within their caps, for these nodes.
    fn holds(problem: &Problem, first_of: &[Vec<u32>], nodes: &Assignment) -> bool {
        let within = |level: usize, rank: usize, node: u32| {
            let firsts = &first_of[level];
            let own = nodes.iter().zip(firsts).filter(|&(_, &first)| first == firsts[rank]);
            own.filter_map(|(other, _)| *other)
                .all(|other| problem.domains.of(level, other) == problem.domains.of(level, node))
        };
        let whole = (0..problem.domains.levels())
            .all(|level| (0..nodes.len()).all(|rank| nodes[rank].is_none_or(|node| within(level, rank, node))));
        whole
            && (0..problem.domains.levels()).all(|level| {
                (0..problem.domains.count(level)).all(|domain| {
                    let used =
                        nodes.iter().flatten().filter(|&&node| problem.domains.of(level, node) == domain).count();
                    used as u32 <= problem.cap(level, domain)
                })
            })
    }

    /// Whether any nodes of the right classes for the other node ranks keep all pieces together: all are tried.
    fn possible(problem: &Problem, first_of: &[Vec<u32>], nodes: &mut Assignment, rank: usize) -> bool {
        if rank == nodes.len() {
            return holds(problem, first_of, nodes);
        }
        if nodes[rank].is_some() || problem.rank_class[rank].is_none() {
            return possible(problem, first_of, nodes, rank + 1);
        }
        for node in 0..problem.domains.nodes() {
            if problem.fits(rank as u32, node) && !nodes.contains(&Some(node)) {
                nodes[rank] = Some(node);
                if possible(problem, first_of, nodes, rank + 1) {
                    nodes[rank] = None;
                    return true;
                }
                nodes[rank] = None;
            }
        }
        false
    }

    fn cases() -> impl Strategy<Value = Case> {
        let node = (0..2_u32, 0..3_u32, 0..2_u32);
        let rank = (0..3_u32, 0..2_u32, prop::option::weighted(0.9, 0..2_u32));
        let caps = prop_oneof![
            3 => Just(Vec::new()),
            1 => prop::collection::vec(prop::collection::vec(0..4_u32, 0..5), 2),
        ];
        let nodes = prop::collection::vec(node, 1..8);
        let fixed = prop_oneof![2 => Just(Vec::new()), 1 => prop::collection::vec(0..6_usize, 1..3)];
        (nodes, prop::collection::vec(rank, 1..7), caps, fixed).prop_map(|(nodes, ranks, caps, fixed)| Case {
            nodes,
            ranks,
            caps,
            fixed,
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 8000, failure_persistence: None, ..ProptestConfig::default() })]

        /// The search finds domains if and only if some nodes keep all pieces together, and its domains have such nodes.
        #[test]
        fn pieces_fit_where_any_nodes_keep_them_together(case in cases()) {
            let (problem, first_of) = (case.problem(), case.first_of());
            let mut fixed = case.assignment(&problem);
            prop_assume!(holds(&problem, &first_of, &fixed));
            let expected = possible(&problem, &first_of, &mut fixed, 0);
            match fitted(&first_of, &problem, &fixed, 100_000) {
                Fit::OutOfBudget => prop_assert!(false, "so few pieces need no such budget"),
                Fit::Impossible => prop_assert!(!expected),
                Fit::Found(leaves) => {
                    prop_assert!(expected);
                    let mut nodes = fixed.clone();
                    for (rank, &leaf) in leaves.iter().enumerate() {
                        let open = fixed[rank].is_none() && problem.rank_class[rank].is_some();
                        prop_assert_eq!(leaf != UNKNOWN, open);
                        let free = |&node: &u32| problem.fits(rank as u32, node) && !nodes.contains(&Some(node));
                        let inside = |&node: &u32| problem.domains.of(1, node) == leaf;
                        if open {
                            let node = (0..problem.domains.nodes()).filter(inside).find(free);
                            prop_assert!(node.is_some());
                            nodes[rank] = node;
                        }
                    }
                    prop_assert!(holds(&problem, &first_of, &nodes));
                }
            }
        }
    }
}
