//! Slots in numbered sets: those of a node, of processes or data groups that go together, or with equal coordinates.

use std::collections::HashMap;

use crate::groups::layout::Layout;
use crate::groups::parallel::Kind;
use crate::groups::slots::Slots;

/// All slots of a component, divided into sets numbered from 0.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SlotSets {
    /// By slot, its set.
    set_of: Vec<u32>,
    /// By set, the index of its first slot in `members`; the last entry is the number of slots.
    starts: Vec<u32>,
    /// The slots, set by set, ascending in each.
    members: Vec<u32>,
}

impl SlotSets {
    /// The sets, by the number of the set of each slot.
    fn new(set_of: Vec<u32>) -> Self {
        let sets = set_of.iter().max().map_or(0, |&last| last as usize + 1);
        let mut starts = vec![0; sets + 1];
        for &set in &set_of {
            starts[set as usize + 1] += 1;
        }
        for set in 0..sets {
            starts[set + 1] += starts[set];
        }
        let mut next = starts.clone();
        let mut members = vec![0; set_of.len()];
        for (slot, &set) in (0..).zip(&set_of) {
            let index = &mut next[set as usize];
            members[*index as usize] = slot;
            *index += 1;
        }
        SlotSets { set_of, starts, members }
    }

    /// The slots of each node, by its rank. Nodes without slots have an empty set.
    pub fn by_node(slots: &Slots) -> Self {
        SlotSets::new(slots.places().map(|(node, _)| node).collect())
    }

    /// The slots of this many consecutive processes.
    pub fn by_process(slots: &Slots, each: u32) -> Self {
        SlotSets::of_processes(slots, |rank, _| rank / each.max(1))
    }

    /// The slots with equal coordinates of these kinds. Sets are numbered in the order of their first slots.
    pub fn by_coordinates(layout: &Layout, kinds: &[Kind]) -> Self {
        let groups: Vec<_> =
            layout.kinds().filter(|kind| kinds.contains(kind)).map(|kind| layout.groups(kind)).collect();
        let mut known = HashMap::new();
        let set_of = (0..layout.slots()).map(|slot| {
            // The sizes of the dense kinds have at most the number of slots as their product, as have those of experts and of
            // shards: together, fewer than 128 bits.
            let key = groups
                .iter()
                .fold(0_u128, |key, group| key * u128::from(group.size()) + u128::from(group.position(slot)));
            let count = known.len() as u32;
            *known.entry(key).or_insert(count)
        });
        SlotSets::new(set_of.collect())
    }

    /// The slots of consecutive data groups that go together, equally many in each set: `shards` of them, or a multiple, so that
    /// no process has slots of two sets.
    pub fn by_data(layout: &Layout, slots: &Slots, shards: u32) -> Self {
        let groups = layout.groups(Kind::Dp);
        let count = groups.size();
        // Whether a process has slots of a data group and of the one before.
        let mut joined = vec![false; count as usize];
        let mut start = 0;
        for rank in 0..slots.processes() {
            let end = slots.start_of(rank + 1);
            let positions = || (start..end).map(|slot| groups.position(slot) as usize);
            if let (Some(first), Some(last)) = (positions().min(), positions().max()) {
                joined[first + 1..=last].fill(true);
            }
            start = end;
        }
        let shards = shards.max(1);
        let apart = |&size: &u32| {
            count.is_multiple_of(size) && (size..count).step_by(size as usize).all(|group| !joined[group as usize])
        };
        let size = (shards..count).step_by(shards as usize).find(apart).unwrap_or(count);
        SlotSets::of_processes(slots, |_, own| own.map(|slot| groups.position(slot)).min().unwrap_or_default() / size)
    }

    /// The sets, by the number of the set of each process.
    fn of_processes(slots: &Slots, set_of: impl Fn(u32, std::ops::Range<u32>) -> u32) -> Self {
        let mut sets = Vec::with_capacity(slots.len() as usize);
        for rank in 0..slots.processes() {
            let own = sets.len() as u32..slots.start_of(rank + 1);
            let (count, set) = (own.len(), set_of(rank, own));
            sets.extend(std::iter::repeat_n(set, count));
        }
        SlotSets::new(sets)
    }

    /// How many sets there are.
    pub fn len(&self) -> u32 {
        self.starts.len() as u32 - 1
    }

    /// Whether there is no set.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How many slots there are.
    pub fn slots(&self) -> u32 {
        self.set_of.len() as u32
    }

    /// The set of a slot.
    pub fn of(&self, slot: u32) -> Option<u32> {
        self.set_of.get(slot as usize).copied()
    }

    /// The slots of a set, ascending; none of an unknown set.
    pub fn get(&self, set: u32) -> &[u32] {
        match self.starts.get(set as usize..set as usize + 2) {
            Some(&[start, end]) => &self.members[start as usize..end as usize],
            _ => &[],
        }
    }

    /// Whether all sets have equally many slots.
    pub fn are_even(&self) -> bool {
        self.starts.windows(2).map(|pair| pair[1] - pair[0]).is_sorted_by(|one, other| one == other)
    }
}
