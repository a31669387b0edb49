//! The cheapest arrangement of a few node ranks, by branch and bound.

use std::cmp::Ordering;
use std::collections::HashMap;

use crate::arrange::demand::Bond;
use crate::arrange::objective::{Assignment, Best, Cost, MOVED, Problem};

/// Improve an arrangement until it is the best with these node ranks fixed; `fixed` has the node of each.
///
/// Returns whether the search ended within its budget of visited states; only then is the result the best.
pub(crate) fn search(problem: &Problem, fixed: &Assignment, best: &mut Best, budget: u32) -> bool {
    let mut search = Search::new(problem, budget);
    let mut open = Vec::new();
    for rank in problem.needed() {
        match fixed[rank as usize] {
            Some(node) => search.put(rank, node),
            None => open.push(rank),
        }
    }
    // Node ranks with many groups in common come one after another, so that crossings show early.
    search.visit(&open, best);
    search.budget > 0
}

/// A set at one level, as far as its members are assigned.
#[derive(Clone, Copy, Default)]
struct Seen {
    assigned: u32,
    /// The domain of the first one.
    first: u32,
    /// The member with which it crossed, counted from 1.
    crossed_by: u32,
}

/// The domains of a level that a set uses, as far as its members are assigned.
struct Tally {
    level: usize,
    /// The number of members.
    members: u32,
    assigned: u32,
    /// By domain.
    shares: HashMap<u32, u32>,
    /// Where the domains beyond the first one count, or where the shares do.
    at: usize,
    balanced: bool,
}

impl Tally {
    fn of(problem: &Problem, set: &Bond, level: usize, at: usize, balanced: bool) -> Self {
        let members = set.ranks.iter().filter(|&&rank| problem.rank_class[rank as usize].is_some()).count() as u32;
        Tally { level, members, assigned: 0, shares: HashMap::new(), at, balanced }
    }

    /// Bounds of the least share, negated, of the number of shares, and of the largest one; exact if all members are assigned.
    fn bounds(&self) -> [i64; 3] {
        let left = self.members - self.assigned;
        let even = self.members / (self.shares.len() as u32).max(1);
        let least = self.shares.values().map(|share| share + left).min().map_or(even, |least| least.min(even));
        let most = self.shares.values().copied().max().unwrap_or(0);
        [-i64::from(least), self.shares.len() as i64, i64::from(most)]
    }
}

struct Search<'a> {
    problem: &'a Problem,
    /// By node rank: its edges and bonds, the latter after all edges.
    sets_of: Vec<Vec<u32>>,
    /// By set and level.
    seen: Vec<Seen>,
    tallies: Vec<Tally>,
    /// By node rank.
    tallies_of: Vec<Vec<u32>>,
    nodes: Assignment,
    taken: Vec<bool>,
    /// By node, whether it is like no other: a node rank was on it, or some of its accelerators are broken.
    own: Vec<bool>,
    /// By level and domain, the nodes in use.
    used: Vec<Vec<u32>>,
    /// By innermost domain; of those with equal numbers, unused ones are interchangeable.
    twins: Vec<u32>,
    cost: Cost,
    budget: u32,
}

impl<'a> Search<'a> {
    fn new(problem: &'a Problem, budget: u32) -> Self {
        let (domains, levels) = (&problem.domains, problem.domains.levels());
        let sets =
            problem.demand.edges.iter().map(|edge| &edge.ranks).chain(problem.bonds.iter().map(|bond| &bond.ranks));
        let mut sets_of = vec![Vec::new(); problem.rank_class.len()];
        let mut count = 0;
        for (set, ranks) in (0..).zip(sets) {
            ranks.iter().for_each(|&rank| sets_of[rank as usize].push(set));
            count += 1;
        }
        let mut tallies = Vec::new();
        let mut tallies_of = vec![Vec::new(); problem.rank_class.len()];
        let mut add = |set: &Bond, level: usize, at: usize, balanced: bool| {
            set.ranks.iter().for_each(|&rank| tallies_of[rank as usize].push(tallies.len() as u32));
            tallies.push(Tally::of(problem, set, level, at, balanced));
        };
        for set in &problem.preferred {
            (0..=set.level).for_each(|level| add(set, level, problem.preferred_at(level), false));
        }
        for (index, set) in problem.balanced.iter().enumerate() {
            add(set, set.level, problem.shares_at(index), true);
        }
        let mut own = vec![false; domains.nodes() as usize];
        problem
            .old
            .iter()
            .chain(&problem.pinned)
            .flatten()
            .chain(problem.unfit.keys())
            .for_each(|&node| own[node as usize] = true);
        let mut cost = problem.free_of_cost();
        let all: Vec<u32> = (0..domains.leaves()).map(|leaf| problem.leaf_size(leaf)).collect();
        if let Some(segments) = cost.last_mut() {
            *segments = -problem.whole_segments(&all);
        }
        Search {
            sets_of,
            seen: vec![Seen::default(); count * levels],
            tallies,
            tallies_of,
            nodes: vec![None; problem.rank_class.len()],
            taken: vec![false; domains.nodes() as usize],
            twins: twins(problem, &own),
            own,
            used: (0..levels).map(|level| vec![0; domains.count(level) as usize]).collect(),
            cost,
            problem,
            budget,
        }
    }

    fn visit(&mut self, open: &[u32], best: &mut Best) {
        for tally in self.tallies.iter().filter(|tally| tally.balanced) {
            self.cost[tally.at..tally.at + 3].copy_from_slice(&tally.bounds());
        }
        let worse = match self.cost.cmp(&best.cost) {
            Ordering::Less => false,
            Ordering::Equal => best.cost[0] > 0 || self.problem.domains.earlier(&best.nodes, &self.nodes),
            Ordering::Greater => true,
        };
        if self.budget == 0 || worse {
            return;
        }
        self.budget -= 1;
        let Some((&rank, rest)) = open.split_first() else {
            let cost = self.problem.cost(&self.nodes);
            // The cost of a large plan takes as long as many states.
            self.budget = self.budget.saturating_sub(self.seen.len() as u32 / 64);
            best.offer(self.problem, cost, &self.nodes);
            return;
        };
        let problem = self.problem;
        let old = problem.old.get(rank as usize).copied().flatten();
        let [mut tried, mut tried_twins] = [(); 2].map(|()| vec![false; problem.domains.leaves() as usize]);
        let others = problem.domains.order().iter().copied().filter(|&node| Some(node) != old);
        for node in old.into_iter().chain(others) {
            if self.taken[node as usize] || !problem.fits(rank, node) {
                continue;
            }
            let leaf = problem.domains.leaf(node);
            if !self.own[node as usize] {
                if std::mem::replace(&mut tried[leaf as usize], true) {
                    continue;
                }
                let unused = self.used.last().is_some_and(|used| used[leaf as usize] == 0);
                if unused && std::mem::replace(&mut tried_twins[self.twins[leaf as usize] as usize], true) {
                    continue;
                }
            }
            self.put(rank, node);
            self.visit(rest, best);
            self.take(rank, node);
        }
    }

    fn put(&mut self, rank: u32, node: u32) {
        let problem = self.problem;
        self.nodes[rank as usize] = Some(node);
        self.taken[node as usize] = true;
        self.count_movement(rank, node, 1);
        for &tally in &self.tallies_of[rank as usize] {
            let tally = &mut self.tallies[tally as usize];
            tally.assigned += 1;
            let share = tally.shares.entry(problem.domains.of(tally.level, node)).or_insert(0);
            *share += 1;
            if *share == 1 && !tally.balanced && tally.shares.len() > 1 {
                self.cost[tally.at] += 1;
            }
        }
        let edges = problem.demand.edges.len();
        for level in 0..problem.domains.levels() {
            let domain = problem.domains.of(level, node);
            let used = &mut self.used[level][domain as usize];
            *used += 1;
            if *used == 1 {
                self.cost[problem.used_at(level)] += 1;
            }
            self.cost[0] += i64::from(*used > problem.cap(level, domain));
            for &set in &self.sets_of[rank as usize] {
                let seen = &mut self.seen[set as usize * problem.domains.levels() + level];
                seen.assigned += 1;
                if seen.assigned == 1 {
                    seen.first = domain;
                } else if seen.crossed_by == 0 && seen.first != domain {
                    seen.crossed_by = seen.assigned;
                    count_crossing(problem, &mut self.cost, set as usize, edges, level, 1);
                }
            }
        }
    }

    fn take(&mut self, rank: u32, node: u32) {
        let problem = self.problem;
        self.nodes[rank as usize] = None;
        self.taken[node as usize] = false;
        self.count_movement(rank, node, -1);
        for &tally in &self.tallies_of[rank as usize] {
            let tally = &mut self.tallies[tally as usize];
            tally.assigned -= 1;
            let domain = problem.domains.of(tally.level, node);
            let share = tally.shares.entry(domain).or_insert(1);
            *share -= 1;
            if *share == 0 {
                tally.shares.remove(&domain);
                if !tally.balanced && !tally.shares.is_empty() {
                    self.cost[tally.at] -= 1;
                }
            }
        }
        let edges = problem.demand.edges.len();
        for level in 0..problem.domains.levels() {
            let domain = problem.domains.of(level, node);
            let used = &mut self.used[level][domain as usize];
            self.cost[0] -= i64::from(*used > problem.cap(level, domain));
            *used -= 1;
            if *used == 0 {
                self.cost[problem.used_at(level)] -= 1;
            }
            for &set in &self.sets_of[rank as usize] {
                let seen = &mut self.seen[set as usize * problem.domains.levels() + level];
                if seen.crossed_by == seen.assigned && seen.crossed_by > 0 {
                    seen.crossed_by = 0;
                    count_crossing(problem, &mut self.cost, set as usize, edges, level, -1);
                }
                seen.assigned -= 1;
            }
        }
    }

    fn count_movement(&mut self, rank: u32, node: u32, sign: i64) {
        let moved = self.problem.movement(rank, node);
        self.cost[MOVED] += sign * moved[0];
        self.cost[MOVED + 1] += sign * moved[1];
    }
}

fn count_crossing(problem: &Problem, cost: &mut Cost, set: usize, edges: usize, level: usize, sign: i64) {
    if let Some(edge) = problem.demand.edges.get(set) {
        cost[problem.crossings_at(level, edge.class)] += sign * i64::from(edge.groups);
    } else if problem.bonds[set - edges].level == level {
        cost[0] += sign;
    }
}

/// Number the innermost domains so that equal ones with the same parent share a number.
fn twins(problem: &Problem, own: &[bool]) -> Vec<u32> {
    let (domains, levels) = (&problem.domains, problem.domains.levels());
    let Some(inner) = levels.checked_sub(1) else { return vec![0] };
    let mut kinds: HashMap<(Option<u32>, u32, Vec<u32>), u32> = HashMap::new();
    let mut found = Vec::new();
    for leaf in 0..domains.count(inner) {
        let nodes = domains.nodes_of(inner, leaf);
        let parent = inner.checked_sub(1).and_then(|outer| Some(domains.of(outer, *nodes.first()?)));
        let mut classes: Vec<u32> = nodes.iter().map(|&node| problem.node_class[node as usize]).collect();
        classes.sort_unstable();
        let alone = nodes.iter().any(|&node| own[node as usize]);
        found.push(if alone {
            leaf
        } else {
            *kinds.entry((parent, problem.cap(inner, leaf), classes)).or_insert(leaf)
        });
    }
    found
}
