//! Free accelerators, and taking them: what decides which node each bundle of a trainer's placement groups is on.
//!
//! Everything is first fit over the nodes, in an order that is fixed before the first accelerator is taken. Accelerators are
//! never given back, so a node without room for a bundle stays without: the search for a size continues where the last one
//! for that size stopped. Taking costs as much as there are nodes and pieces of them, not accelerators.

use std::collections::BTreeMap;
use std::ops::Range;

use crate::ids::NodeRank;
use crate::inventory::Inventory;
use crate::rank_set::{RankRange, RankSet, append};
use crate::steps::{Shares, Steps, ascending, step_sizes, steps_of, whole_first};
use crate::taken::Taken;

/// How accelerators are taken.
#[derive(Clone, Copy, Debug)]
pub enum Fill<'a> {
    /// Node by node.
    Next,
    /// On the first node with room for all of them, else node by node.
    Packed,
    /// In bundles of these sizes in turn, each on the first node with room for it.
    Bundles(&'a [u32]),
    /// On the first node with room for all of them, else in whole steps, none of which is on two nodes, else node by node.
    ///
    /// A step is the largest of these sizes, and of their common multiple, with which all steps fit. If none does, as many
    /// whole steps as fit come first and the rest is of other nodes, unless nodes must be ascending.
    Steps {
        /// The sizes of the groups that should stay on one node.
        sizes: &'a [u32],
        /// Whether the trainer sorts the nodes, so that no step may be on a node before that of the step before it.
        ascending: bool,
    },
    /// In the first of these lists of steps that fits on ascending nodes, else node by node.
    Lists(&'a [Vec<Steps>]),
    /// In bundles of these sizes, one after another, each on the first node with room that has no other bundle of this
    /// request. If every node with room has one, a `strict` request fails; any other takes the first node with room.
    Spread {
        /// The size of each bundle.
        sizes: &'a [u32],
        /// Whether no two bundles may be on one node.
        strict: bool,
    },
}

/// Why accelerators cannot be taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Short {
    /// The accelerators that are free on all nodes together.
    pub free: u32,
    /// The bundles before the one without room. They stay taken, so that later faults count what is left then.
    pub bundles: u32,
    /// The size of the bundle without room; `None` if there are too few accelerators in all.
    pub size: Option<u32>,
}

/// The free accelerators of each node, in the order in which nodes are looked at.
#[derive(Clone, Debug, Default)]
pub struct Free {
    /// The accelerators that were free at first, in that order; those of a node are next to each other.
    pieces: Vec<RankRange>,
    rooms: Vec<Room>,
    left: u32,
    /// By size, the first position in `rooms` that may have room for it.
    starts: BTreeMap<u32, usize>,
}

/// What is free on a node: the rest of `piece` after `used` accelerators, and the pieces after it, `left` in all.
#[derive(Clone, Copy, Debug)]
struct Room {
    piece: usize,
    used: u32,
    left: u32,
}

impl Free {
    /// The accelerators that are not excluded. `order` has the node ranks to look at, each once; all of them by default.
    pub fn new(inventory: &Inventory, excluded: &RankSet, order: Option<&[u32]>) -> Self {
        let mut free = Free::of_nodes(inventory, order);
        for node in visited(inventory, order) {
            free.add_node(inventory.accelerators_of(node), excluded);
        }
        free
    }

    /// No accelerators yet, with room for those of the nodes.
    fn of_nodes(inventory: &Inventory, order: Option<&[u32]>) -> Self {
        let nodes = order.map_or(inventory.num_nodes() as usize, <[u32]>::len);
        Free { pieces: Vec::with_capacity(nodes), rooms: Vec::with_capacity(nodes), ..Free::default() }
    }

    /// As [`Free::new`], with the accelerators of a node in the order of their ids instead of their indices.
    pub fn by_id(inventory: &Inventory, excluded: &RankSet, order: Option<&[u32]>) -> Self {
        let mut free = Free::of_nodes(inventory, order);
        let mut known: (&[String], Option<Vec<u32>>) = (&[], None); // most nodes have the ids of the node before
        for node in visited(inventory, order) {
            let Some(all) = inventory.accelerators_of(node) else { continue };
            let ids = inventory.accelerator_ids(node);
            if ids != known.0 {
                known = (ids, sorted_by_id(ids));
            }
            match &known.1 {
                None => free.add_node(Some(all), excluded),
                Some(indices) => {
                    let single = indices.iter().filter_map(|index| RankRange::counted(all.first() + index, 1));
                    free.add(single.flat_map(|one| excluded.gaps(one)));
                }
            }
        }
        free
    }

    /// The first `each` accelerators of some nodes, excluded or not.
    pub fn first_of(inventory: &Inventory, nodes: Range<u32>, each: u32) -> Self {
        let mut free = Free::default();
        for node in nodes {
            let all = inventory.accelerators_of(NodeRank(node));
            free.add(all.and_then(|all| RankRange::counted(all.first(), all.len().min(each))).into_iter());
        }
        free
    }

    /// Add a node with these accelerators, but for the excluded ones.
    fn add_node(&mut self, all: Option<RankRange>, excluded: &RankSet) {
        if excluded.is_empty() {
            self.add(all.into_iter());
        } else {
            self.add(all.into_iter().flat_map(|all| excluded.gaps(all)));
        }
    }

    /// Add a node with these free accelerators.
    fn add(&mut self, pieces: impl Iterator<Item = RankRange>) {
        let piece = self.pieces.len();
        self.pieces.extend(pieces);
        let left = self.pieces[piece..].iter().map(|range| range.len()).sum();
        if left > 0 {
            self.rooms.push(Room { piece, used: 0, left });
            self.left += left;
        }
    }

    /// The number of accelerators that are free.
    pub fn left(&self) -> u32 {
        self.left
    }

    /// The most accelerators that are free on a node.
    pub fn largest(&self) -> u32 {
        self.room_sizes().max().unwrap_or(0)
    }

    /// How many bundles of so many accelerators fit, each on one node.
    pub fn bundles(&self, size: u32) -> u32 {
        self.rooms.iter().map(|room| room.left / size.max(1)).sum()
    }

    /// Take accelerators.
    ///
    /// # Errors
    /// [`Short`], if there are too few, or no node has room for a bundle.
    pub fn take(&mut self, count: u32, fill: Fill<'_>) -> Result<Taken, Short> {
        let mut taken = Vec::new();
        if count > self.left {
            return Err(Short { free: self.left, bundles: 0, size: None });
        }
        match fill {
            Fill::Next => self.take_next(count, &mut taken),
            Fill::Packed => {
                if !self.take_together(count, &mut taken) {
                    self.take_next(count, &mut taken);
                }
            }
            Fill::Bundles(sizes) => self.take_bundles(count, sizes, &mut taken)?,
            Fill::Steps { sizes, ascending } => self.take_steps(count, sizes, ascending, &mut taken),
            Fill::Lists(lists) => match lists.iter().find_map(|list| ascending(self.room_sizes(), list)) {
                Some(shares) => self.take_shares(&shares, &mut taken),
                None => self.take_next(count, &mut taken),
            },
            Fill::Spread { sizes, strict } => self.take_apart(count, sizes, strict, &mut taken)?,
        }
        // An inventory has at most as many accelerators as 32 bits count.
        Ok(Taken::from_ranges(taken).unwrap_or_default())
    }

    fn room_sizes(&self) -> impl Iterator<Item = u32> + use<'_> {
        self.rooms.iter().map(|room| room.left)
    }

    fn take_next(&mut self, count: u32, taken: &mut Vec<RankRange>) {
        let mut rest = count;
        while rest > 0
            && let Some(position) = self.first_with(1)
        {
            let here = self.rooms[position].left.min(rest);
            self.take_at(position, here, taken);
            rest -= here;
        }
    }

    /// Take accelerators of the first node with room for all of them, if there is one.
    fn take_together(&mut self, count: u32, taken: &mut Vec<RankRange>) -> bool {
        let position = self.first_with(count);
        if let Some(position) = position {
            self.take_at(position, count, taken);
        }
        position.is_some()
    }

    fn take_bundles(&mut self, count: u32, sizes: &[u32], taken: &mut Vec<RankRange>) -> Result<(), Short> {
        if let &[size] = sizes
            && size > 0
        {
            return self.take_equal(count, size, taken);
        }
        for (bundles, size) in bundles_of(count, sizes) {
            if !self.take_together(size, taken) {
                return Err(Short { free: self.left, bundles, size: Some(size) });
            }
        }
        Ok(())
    }

    /// Take bundles of one size, the last of which may be smaller: as many as a node has room for at a time.
    fn take_equal(&mut self, count: u32, size: u32, taken: &mut Vec<RankRange>) -> Result<(), Short> {
        let (whole, rest) = (count / size, count % size);
        let mut bundles = 0;
        while bundles < whole {
            let Some(position) = self.first_with(size) else {
                return Err(Short { free: self.left, bundles, size: Some(size) });
            };
            let fitting = (self.rooms[position].left / size).min(whole - bundles);
            self.take_at(position, fitting * size, taken);
            bundles += fitting;
        }
        if rest > 0 && !self.take_together(rest, taken) {
            return Err(Short { free: self.left, bundles, size: Some(rest) });
        }
        Ok(())
    }

    fn take_steps(&mut self, count: u32, sizes: &[u32], ascends: bool, taken: &mut Vec<RankRange>) {
        if self.take_together(count, taken) {
            return;
        }
        let steps = step_sizes(sizes, count);
        let mut shares = steps.iter().find_map(|&step| ascending(self.room_sizes(), &steps_of(count, step)));
        if shares.is_none() && !ascends {
            shares = steps.iter().find_map(|&step| whole_first(self.room_sizes(), count, step));
        }
        match shares {
            Some(shares) => self.take_shares(&shares, taken),
            None => self.take_next(count, taken),
        }
    }

    /// Take bundles on nodes of their own. A node that has a bundle is passed by, as one without room is, so the search for a
    /// size continues where the last one for it stopped.
    fn take_apart(&mut self, count: u32, sizes: &[u32], strict: bool, taken: &mut Vec<RankRange>) -> Result<(), Short> {
        let mut used = vec![false; self.rooms.len()];
        let mut starts: BTreeMap<u32, usize> = BTreeMap::new();
        for (bundles, size) in bundles_of(count, sizes) {
            let start = starts.entry(size).or_default();
            while *start < self.rooms.len() && (used[*start] || self.rooms[*start].left < size) {
                *start += 1;
            }
            let apart = (*start < self.rooms.len()).then_some(*start);
            let position = if strict { apart } else { apart.or_else(|| self.first_with(size)) };
            let Some(position) = position else {
                return Err(Short { free: self.left, bundles, size: Some(size) });
            };
            used[position] = true;
            self.take_at(position, size, taken);
        }
        Ok(())
    }

    fn take_shares(&mut self, shares: &Shares, taken: &mut Vec<RankRange>) {
        for &(position, count) in shares {
            self.take_at(position, count, taken);
        }
    }

    /// The first position with room for so many accelerators.
    fn first_with(&mut self, count: u32) -> Option<usize> {
        let start = self.starts.entry(count).or_default();
        while self.rooms.get(*start).is_some_and(|room| room.left < count) {
            *start += 1;
        }
        (*start < self.rooms.len()).then_some(*start)
    }

    /// Take accelerators of a node that has so many.
    fn take_at(&mut self, position: usize, count: u32, taken: &mut Vec<RankRange>) {
        let room = &mut self.rooms[position];
        room.left -= count;
        self.left -= count;
        let mut rest = count;
        while rest > 0 {
            let piece = self.pieces[room.piece];
            let here = (piece.len() - room.used).min(rest);
            if let Some(range) = RankRange::counted(piece.first() + room.used, here) {
                append(taken, 0, range); // whole nodes in a row stay one range
            }
            rest -= here;
            room.used += here;
            if room.used == piece.len() {
                room.piece += 1;
                room.used = 0;
            }
        }
    }
}

/// The nodes in the order in which they are looked at.
fn visited<'a>(inventory: &Inventory, order: Option<&'a [u32]>) -> impl Iterator<Item = NodeRank> + use<'a> {
    let all = if order.is_none() { 0..inventory.num_nodes() } else { 0..0 };
    all.chain(order.unwrap_or_default().iter().copied()).map(NodeRank)
}

/// Bundles of these sizes in turn until they have so many accelerators, with their numbers; the last one may be smaller.
fn bundles_of(count: u32, sizes: &[u32]) -> impl Iterator<Item = (u32, u32)> + use<'_> {
    let sizes = sizes.iter().copied().filter(|&size| size > 0).cycle();
    let bundles = sizes.scan(count, |rest, size| {
        let bundle = size.min(*rest);
        *rest -= bundle;
        (bundle > 0).then_some(bundle)
    });
    (0..).zip(bundles)
}

/// The indices of accelerators in the order of their ids; `None` if they are in it. Numbers come first, as numbers, then
/// other ids as text. Equal ids keep their order.
///
/// slime: `sort_key`.
fn sorted_by_id(ids: &[String]) -> Option<Vec<u32>> {
    let key = |index: &u32| id_key(&ids[*index as usize]);
    let mut indices: Vec<u32> = (0..ids.len() as u32).collect();
    if indices.is_sorted_by_key(key) {
        return None;
    }
    indices.sort_by_key(key);
    Some(indices)
}

/// What an id of an accelerator is sorted by: whether it is no number, the digits of a number without zeros before it, and
/// the text.
fn id_key(id: &str) -> (bool, usize, &str) {
    if id.is_empty() || !id.bytes().all(|byte| byte.is_ascii_digit()) {
        return (true, 0, id);
    }
    let digits = id.trim_start_matches('0');
    (false, digits.len(), digits)
}
