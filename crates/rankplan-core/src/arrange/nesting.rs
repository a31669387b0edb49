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
        let Some(filled) = &self.filled else {
            cost[0] = 1;
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
        let all: Vec<u32> = (0..domains.leaves()).map(|leaf| problem.leaf_size(leaf)).collect();
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
