//! Node ranks that must share a domain, level by level: whether any arrangement keeps all of them together.
//!
//! A set that shares a domain shares every outer one. So the sets of a level, merged where they overlap, are split further at
//! the next level: a forest, which has to fit into the tree of domains.

use std::collections::{HashMap, HashSet};

use crate::arrange::demand::Bond;
use crate::arrange::filling::{Filled, Filling, Shares};
use crate::arrange::hierarchy::UNKNOWN;
use crate::arrange::objective::{Assignment, Cost, MOVED, Problem};

/// The pieces of a plan at every level: node ranks that must share a domain there.
pub(crate) struct Nesting {
    /// By level and node rank, the first node rank of its piece.
    first_of: Vec<Vec<u32>>,
    /// By level, the units that a domain takes: the size of its pieces if all have the same, else the unit of the next level.
    pub units: Vec<u32>,
    /// The nodes in use of each innermost domain if all nodes with hardware that some node rank needs are alike and no node rank
    /// is fixed; `None` if not even then all pieces fit.
    pub filled: Option<Filled>,
    /// A lower bound of the cost of every arrangement.
    pub bound: Cost,
}

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
            cost[at + 1] = i64::from(shares.most);
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

    /// Search for domains of all pieces, with these node ranks fixed; `budget` limits the domains that are tried.
    pub fn search(&self, problem: &Problem, fixed: &Assignment, budget: u32) -> Fit {
        let mut search = Search::new(self, problem, fixed, budget);
        let found = search.fits(None);
        match found {
            Some(found) => {
                let mut leaves = vec![UNKNOWN; problem.rank_class.len()];
                found.into_iter().for_each(|(rank, leaf)| leaves[rank as usize] = leaf);
                Fit::Found(leaves)
            }
            None if search.budget == 0 => Fit::OutOfBudget,
            None => Fit::Impossible,
        }
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
    fn new(nesting: &Nesting, problem: &'a Problem, fixed: &Assignment, budget: u32) -> Self {
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
            let first_of = &nesting.first_of[level];
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
