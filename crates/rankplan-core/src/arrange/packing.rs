//! Node ranks into domains, level by level from the outermost: sets that communicate are merged while a domain has room for
//! them, then packed best fit, largest first. A merged set without room falls apart again, cheapest bonds first.

use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap};

use crate::arrange::bundles::Bundles;
use crate::arrange::hierarchy::UNKNOWN;
use crate::arrange::merging::Merging;
use crate::arrange::objective::{Assignment, Problem};

/// Place the node ranks that are not fixed. `allotted`, if not empty, has the innermost domain of each bundle, or [`UNKNOWN`].
///
/// Returns `None` if the hardware does not suffice.
pub(crate) fn packed(problem: &Problem, fixed: &Assignment, bundles: &Bundles, allotted: &[u32]) -> Option<Assignment> {
    let mut packing = Packing::new(problem, fixed, bundles, allotted);
    for level in 0..problem.domains.levels() {
        packing.level(level);
    }
    packing.nodes()
}

struct Packing<'a> {
    problem: &'a Problem,
    fixed: &'a Assignment,
    bundles: &'a Bundles,
    classes: usize,
    /// By innermost domain and class, the nodes for bundles without a domain.
    room: Vec<u32>,
    /// By bundle, its domain at the level that was packed last, or [`UNKNOWN`].
    at: Vec<u32>,
    /// By bundle, its innermost domain if that is decided.
    leaf: Vec<u32>,
    /// Sets that can still be within a domain down to a level, dearest first: bonds, preferred sets, then edges.
    sets: Vec<(&'a [u32], usize)>,
}

impl<'a> Packing<'a> {
    fn new(problem: &'a Problem, fixed: &'a Assignment, bundles: &'a Bundles, allotted: &[u32]) -> Self {
        let classes = bundles.classes;
        let mut room = free_nodes(problem, fixed, classes);
        let mut leaf = vec![UNKNOWN; bundles.len()];
        for (bundle, leaf) in leaf.iter_mut().enumerate() {
            let wanted = allotted.get(bundle).copied().unwrap_or(UNKNOWN);
            let wanted = if wanted == UNKNOWN { bundles.label[bundle] } else { wanted };
            if wanted == UNKNOWN {
                continue;
            }
            let room = &mut room[wanted as usize * classes..][..classes];
            let need = bundles.need(bundle);
            if need.iter().zip(&*room).all(|(need, room)| need <= room) {
                room.iter_mut().zip(need).for_each(|(room, need)| *room -= need);
                *leaf = wanted;
            }
        }
        if let Some(size) = bundles.common_size(&leaf) {
            // Only whole bundles count: the rest of a domain is no room for another one.
            room.iter_mut().for_each(|room| *room -= *room % size);
        }
        let free =
            |ranks: &[u32]| ranks.iter().filter(|&&rank| bundles.of_rank[rank as usize] != UNKNOWN).count() as u64;
        let inner = problem.domains.levels().saturating_sub(1);
        let mut sets: Vec<(&[u32], usize)> =
            problem.bonds.iter().filter(|bond| bond.level < inner).map(|bond| (&*bond.ranks, bond.level)).collect();
        let mut edges: Vec<_> = problem.demand.edges.iter().map(|edge| (edge, free(&edge.ranks))).collect();
        edges.retain(|&(_, free)| free > 0);
        edges.sort_by(|(a, need_a), (b, need_b)| {
            let cheap = (need_a * u64::from(b.groups)).cmp(&(need_b * u64::from(a.groups)));
            a.class.cmp(&b.class).then(cheap)
        });
        sets.extend(problem.preferred.iter().map(|set| (&*set.ranks, set.level)));
        sets.extend(edges.into_iter().map(|(edge, _)| (&*edge.ranks, usize::MAX)));
        Packing { problem, fixed, bundles, classes, room, at: vec![0; bundles.len()], leaf, sets }
    }

    /// The domain at a level of a node rank that is fixed or whose bundle has its innermost domain.
    fn domain_of(&self, level: usize, rank: u32) -> Option<u32> {
        let domains = &self.problem.domains;
        if let Some(node) = self.fixed[rank as usize] {
            return Some(domains.of(level, node));
        }
        let leaf = self.leaf[self.bundles.of_rank[rank as usize] as usize];
        let inner = domains.levels() - 1;
        (leaf != UNKNOWN).then(|| domains.of(level, domains.nodes_of(inner, leaf)[0]))
    }

    fn parent_of(&self, level: usize, domain: u32) -> u32 {
        let domains = &self.problem.domains;
        level.checked_sub(1).map_or(0, |outer| domains.of(outer, domains.nodes_of(level, domain)[0]))
    }

    fn level(&mut self, level: usize) {
        let count = self.problem.domains.count(level);
        let parents: Vec<u32> = (0..count).map(|domain| self.parent_of(level, domain)).collect();
        let room = self.room_at(level);
        let mut merging = Merging::new(self.bundles, &self.leaf, room, &parents);
        let mut sets = std::mem::take(&mut self.sets);
        let mut members = Vec::new();
        sets.retain(|&(ranks, down_to)| {
            members.clear();
            let (mut label, mut parent) = (UNKNOWN, UNKNOWN);
            let agrees = |known: &mut u32, found: u32| {
                let fits = *known == UNKNOWN || *known == found;
                *known = found;
                fits
            };
            for &rank in ranks {
                let Some(domain) = self.domain_of(level, rank) else {
                    let bundle = self.bundles.of_rank[rank as usize];
                    let at = self.at[bundle as usize];
                    if at == UNKNOWN || !agrees(&mut parent, at) {
                        return false;
                    }
                    members.push(bundle);
                    continue;
                };
                if !agrees(&mut label, domain) || !agrees(&mut parent, parents[domain as usize]) {
                    return false;
                }
            }
            merging.merge(&members, label, parent) && (down_to == usize::MAX || level < down_to)
        });
        self.sets = sets;
        let touched = self.touched(level);
        self.pack(level, merging, &parents, &touched);
    }

    /// By domain and class, the nodes for bundles without a domain.
    fn room_at(&self, level: usize) -> Vec<u32> {
        let (domains, classes) = (&self.problem.domains, self.classes);
        let mut room = self.room.clone();
        for level in (level..domains.levels() - 1).rev() {
            let left = self.problem.caps.get(level).filter(|caps| !caps.is_empty()).map(|caps| self.left(level, caps));
            let sum = |domain: u32, class: usize| {
                let sum = domains.inside(level, domain).map(|inner| room[inner * classes + class]).sum::<u32>();
                sum.min(left.as_ref().map_or(u32::MAX, |left| left[domain as usize]))
            };
            let all = (0..domains.count(level)).flat_map(|domain| (0..classes).map(move |class| (domain, class)));
            room = all.map(|(domain, class)| sum(domain, class)).collect();
        }
        room
    }

    /// By domain, the nodes that its cap leaves to bundles without a domain.
    fn left(&self, level: usize, caps: &[u32]) -> Vec<u32> {
        let (domains, inner) = (&self.problem.domains, self.problem.domains.levels() - 1);
        let mut left = caps.to_vec();
        let mut take = |domain: u32, nodes: u32| {
            let left = &mut left[domain as usize];
            *left = left.saturating_sub(nodes);
        };
        self.fixed.iter().flatten().for_each(|&node| take(domains.of(level, node), 1));
        for (bundle, &leaf) in self.leaf.iter().enumerate().filter(|(_, leaf)| **leaf != UNKNOWN) {
            take(domains.of(level, domains.nodes_of(inner, leaf)[0]), self.bundles.size(bundle));
        }
        left
    }

    /// By domain, whether a node of it is in use.
    fn touched(&self, level: usize) -> Vec<bool> {
        let domains = &self.problem.domains;
        let mut touched = vec![false; domains.count(level) as usize];
        self.fixed.iter().flatten().for_each(|&node| touched[domains.of(level, node) as usize] = true);
        let inner = domains.levels() - 1;
        for &leaf in self.leaf.iter().filter(|leaf| **leaf != UNKNOWN) {
            touched[domains.of(level, domains.nodes_of(inner, leaf)[0]) as usize] = true;
        }
        touched
    }

    fn pack(&mut self, level: usize, merging: Merging<'_>, parents: &[u32], touched: &[bool]) {
        let mut tops: Vec<u32> = merging.tops().collect();
        tops.retain(|&top| {
            let label = merging.label(top);
            if label != UNKNOWN {
                merging.bundles_of(top, |bundle| self.at[bundle as usize] = label);
            }
            label == UNKNOWN
        });
        let parent = |top: u32| self.at[merging.first_bundle(top) as usize];
        tops.sort_by_key(|&top| parent(top));
        let mut groups: Vec<(u32, Vec<u32>)> = Vec::new();
        for top in tops {
            match groups.last_mut() {
                Some((known, members)) if *known == parent(top) => members.push(top),
                _ => groups.push((parent(top), vec![top])),
            }
        }
        for (parent, tops) in groups {
            let first = parents.partition_point(|&of| of < parent);
            let end = parents.partition_point(|&of| of <= parent);
            let mut bins = Bins::new(first as u32..end as u32, merging.room(), touched, self.classes);
            let mut left = vec![0; self.classes];
            for &top in &tops {
                left.iter_mut().zip(merging.need(top)).for_each(|(left, need)| *left += need);
            }
            let size = |top: u32| (merging.need(top).iter().sum::<u32>(), Reverse(merging.first_bundle(top)), top);
            let mut heap: BinaryHeap<_> = tops.iter().map(|&top| size(top)).collect();
            while let Some((_, _, top)) = heap.pop() {
                let need = merging.need(top);
                if let Some(domain) = bins.choose(need, &left) {
                    merging.bundles_of(top, |bundle| self.at[bundle as usize] = domain);
                    left.iter_mut().zip(need).for_each(|(left, need)| *left -= need);
                } else if merging.children(top).is_empty() {
                    // No domain has room for the whole bundle: its node ranks get what remains.
                    self.at[top as usize] = UNKNOWN;
                    left.iter_mut().zip(need).for_each(|(left, need)| *left -= need);
                } else {
                    heap.extend(merging.children(top).iter().map(|&child| size(child)));
                }
            }
        }
        if level + 1 == self.problem.domains.levels() {
            for (leaf, at) in self.leaf.iter_mut().zip(&self.at) {
                *leaf = if *leaf == UNKNOWN { *at } else { *leaf };
            }
        }
    }

    /// The nodes of all node ranks: within an innermost domain in order, then on the remaining nodes.
    fn nodes(mut self) -> Option<Assignment> {
        let (problem, classes) = (self.problem, self.classes);
        let mut nodes = self.fixed.clone();
        let mut taken = vec![false; problem.domains.nodes() as usize];
        nodes.iter().flatten().for_each(|&node| taken[node as usize] = true);
        if problem.domains.levels() == 0 {
            self.leaf.fill(0);
        }
        let mut free = vec![Vec::new(); problem.domains.leaves() as usize * classes];
        for &node in problem.domains.order().iter().rev().filter(|node| !taken[**node as usize]) {
            let class = problem.node_class[node as usize] as usize;
            if class < classes {
                free[problem.domains.leaf(node) as usize * classes + class].push(node);
            }
        }
        let mut strays = Vec::new();
        for rank in problem.needed().filter(|&rank| self.fixed[rank as usize].is_none()) {
            let leaf = self.leaf[self.bundles.of_rank[rank as usize] as usize];
            let class = problem.rank_class[rank as usize].unwrap_or(0) as usize;
            let node = if leaf == UNKNOWN { None } else { free[leaf as usize * classes + class].pop() };
            nodes[rank as usize] = node;
            if node.is_none() {
                strays.push((rank, class));
            }
        }
        let mut remaining: Vec<Vec<u32>> = vec![Vec::new(); classes];
        if !strays.is_empty() {
            for (index, found) in free.into_iter().enumerate().rev() {
                remaining[index % classes].extend(found);
            }
        }
        for (rank, class) in strays {
            nodes[rank as usize] = Some(remaining[class].pop()?);
        }
        Some(nodes)
    }
}

/// By innermost domain and class, the nodes that no fixed node rank has, as many as its cap leaves.
pub(crate) fn free_nodes(problem: &Problem, fixed: &Assignment, classes: usize) -> Vec<u32> {
    let mut room = vec![0; problem.domains.leaves() as usize * classes];
    let mut count = |node: u32, sign: i32| {
        let class = problem.node_class[node as usize] as usize;
        if class < classes {
            let room: &mut u32 = &mut room[problem.domains.leaf(node) as usize * classes + class];
            *room = room.saturating_add_signed(sign);
        }
    };
    (0..problem.domains.nodes()).for_each(|node| count(node, 1));
    fixed.iter().flatten().for_each(|&node| count(node, -1));
    if let Some(caps) = problem.caps.last().filter(|caps| !caps.is_empty()) {
        let mut left = caps.clone();
        for &node in fixed.iter().flatten() {
            let left = &mut left[problem.domains.leaf(node) as usize];
            *left = left.saturating_sub(1);
        }
        room.chunks_mut(classes)
            .zip(left)
            .for_each(|(room, left)| room.iter_mut().for_each(|room| *room = (*room).min(left)));
    }
    room
}

/// The domains that are tried for a set that needs several classes of hardware.
const MOST_TRIED: usize = 64;

/// The domains of one parent, by class and free nodes; those in use apart from the others.
struct Bins {
    first: u32,
    classes: usize,
    /// By domain and class.
    room: Vec<u32>,
    used: Vec<bool>,
    /// By class: used domains by room; unused ones by room.
    by_room: [Vec<BTreeSet<(u32, u32)>>; 2],
}

impl Bins {
    fn new(domains: std::ops::Range<u32>, room: &[u32], touched: &[bool], classes: usize) -> Self {
        let (first, end) = (domains.start as usize, domains.end as usize);
        let sets = || vec![BTreeSet::new(); classes];
        let mut bins = Bins {
            first: domains.start,
            classes,
            room: room[first * classes..end * classes].to_vec(),
            used: touched[first..end].to_vec(),
            by_room: [sets(), sets()],
        };
        for domain in 0..domains.end - domains.start {
            for class in 0..classes {
                let room = bins.room_of(domain)[class];
                bins.by_room[usize::from(!bins.used[domain as usize])][class].insert((room, domain));
            }
        }
        bins
    }

    fn room_of(&self, domain: u32) -> &[u32] {
        &self.room[domain as usize * self.classes..][..self.classes]
    }

    /// Take room for a set: in the fullest domain in use that has it; else in the smallest unused one that has room for all that
    /// is left; else in the largest.
    fn choose(&mut self, need: &[u32], left: &[u32]) -> Option<u32> {
        let class = (0..self.classes).max_by_key(|&class| (need[class], Reverse(class)))?;
        let fits = |domain: u32, need: &[u32]| self.room_of(domain).iter().zip(need).all(|(room, need)| need <= room);
        let smallest = |set: &BTreeSet<(u32, u32)>, need: &[u32]| {
            set.range((need[class], 0)..).take(MOST_TRIED).map(|&(_, domain)| domain).find(|&domain| fits(domain, need))
        };
        let [used, unused] = [&self.by_room[0][class], &self.by_room[1][class]];
        let largest = || {
            let &(most, _) = unused.last()?;
            // With one class of hardware, the first one decides.
            let others = unused.iter().rev().take(if self.classes > 1 { MOST_TRIED } else { 0 });
            unused
                .range((most, 0)..)
                .take(MOST_TRIED)
                .chain(others)
                .map(|&(_, domain)| domain)
                .find(|&domain| fits(domain, need))
        };
        let domain = smallest(used, need).or_else(|| smallest(unused, left)).or_else(largest)?;
        let at = domain as usize;
        for (class, need) in need.iter().enumerate() {
            let room = self.room[at * self.classes + class];
            self.by_room[usize::from(!self.used[at])][class].remove(&(room, domain));
            self.by_room[0][class].insert((room - need, domain));
            self.room[at * self.classes + class] = room - need;
        }
        self.used[at] = true;
        Some(self.first + domain)
    }
}
