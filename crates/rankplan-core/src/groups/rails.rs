//! Whether data groups use the same local indices on each of their nodes.
//!
//! Accelerators with the same local index on equal nodes share a rail: a switch of their own. A data group stays on its rails
//! if its local indices on one node contain those on every other equal node.

use std::collections::{BTreeSet, HashMap};

use crate::diagnostic::{Code, Diagnostic};
use crate::groups::layout::Layout;
use crate::groups::node_runs::divided;
use crate::groups::parallel::{Groups, Kind};
use crate::groups::slots::{Slots, Stretch};
use crate::groups::spans::gcd;
use crate::ids::NodeRank;
use crate::inventory::Inventory;
use crate::rank_set::RankSet;

/// How many data groups leave their rails, and the index of the first one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rails {
    /// Groups with different local indices on equal nodes.
    pub mismatched: u32,
    /// The index of the first of them.
    pub first: Option<u32>,
}

/// A kind of node: type and number of its accelerators.
type Class<'a> = (&'a str, usize);

/// A node, and the local indices of a group there.
type OnNode = (u32, BTreeSet<u16>);

/// The local indices of a group on the nodes of one kind: all of them, and the most on one node.
#[derive(Default)]
struct Indices {
    all: BTreeSet<u16>,
    most: usize,
}

/// A stretch on nodes of one kind.
#[derive(Clone, Copy)]
struct Equal<'a> {
    stretch: Stretch,
    class: Class<'a>,
    /// Whether its nodes are in other stretches too.
    revisited: bool,
}

/// The slots and the equal nodes on which groups are compared.
struct Rows<'a> {
    equal: Vec<Equal<'a>>,
    slots: &'a Slots,
    groups: Groups,
}

impl Slots {
    /// How many groups leave their rails.
    pub fn rails(&self, groups: Groups, inventory: &Inventory) -> Rails {
        let rows = Rows { equal: self.on_equal_nodes(inventory), slots: self, groups };
        let mut rails = Rails::default();
        let (mut block, blocks) = (0, self.len() / groups.block());
        while block < blocks {
            // Blocks of groups inside one stretch repeat after as many as fill whole nodes.
            let first = rows.equal[rows.stretch_of(block * groups.block())];
            let each = rows.devices(first).len() as u32;
            let end = first.stretch.first_slot + first.stretch.nodes * each;
            let alike = if first.revisited { 1 } else { ((end - block * groups.block()) / groups.block()).max(1) };
            let period = (each / gcd(each, groups.block())).min(alike);
            let mut counts = Vec::new();
            for index in block..block + period {
                let (mismatched, first) = rows.block(index);
                rails.first = rails.first.or(first);
                counts.push(mismatched);
            }
            let (times, rest) = (alike / period, alike % period);
            rails.mismatched += times * counts.iter().sum::<u32>() + counts[..rest as usize].iter().sum::<u32>();
            block += alike;
        }
        rails
    }

    /// The stretches, divided where the kind of node changes and where nodes are in several stretches.
    fn on_equal_nodes<'a>(&self, inventory: &'a Inventory) -> Vec<Equal<'a>> {
        let mut equal: Vec<Equal<'_>> = Vec::new();
        for stretch in &self.stretches {
            let pattern = &self.patterns[stretch.pattern];
            for (nodes, revisited) in divided(stretch.node..stretch.node + stretch.nodes, &self.revisited) {
                let before = equal.len();
                for node in nodes {
                    let class = class_of(inventory, node);
                    match equal[before..].last_mut() {
                        Some(last) if last.class == class => last.stretch.nodes += 1,
                        _ => {
                            let offset = node - stretch.node;
                            let first_slot = stretch.first_slot + offset * pattern.slots();
                            let first_rank = stretch.first_rank + offset * pattern.ends.len() as u32;
                            let stretch = Stretch { first_slot, first_rank, node, nodes: 1, ..*stretch };
                            equal.push(Equal { stretch, class, revisited });
                        }
                    }
                }
            }
        }
        equal
    }

    /// The warning for data groups that leave their rails.
    pub fn rail_warning(&self, layout: &Layout, inventory: &Inventory, name: &str) -> Option<Diagnostic> {
        let groups = layout.groups(Kind::Dp);
        let rails = self.rails(groups, inventory);
        let index = rails.first?;
        let (one, other) = self.different_nodes(groups, index, inventory)?;
        let local = |(node, indices): &OnNode| {
            let indices: RankSet = indices.iter().map(|&index| u32::from(index)).collect();
            format!("{indices} on node {node}")
        };
        let places = format!("local indices {} and {}", local(&one), local(&other));
        let message = if rails.mismatched == 1 {
            format!("{name}: data group {index} uses {places}")
        } else {
            let several = format!("{} of {} data groups", rails.mismatched, groups.len());
            format!("{name}: {several} use different local indices on equal nodes; group {index} uses {places}")
        };
        let help =
            "start the component at the first accelerator of a node, and use sizes that divide a node".to_owned();
        Some(Diagnostic::new(Code::RailMismatch, message).help(help))
    }

    /// Two nodes on which a group has different local indices.
    fn different_nodes(&self, groups: Groups, index: u32, inventory: &Inventory) -> Option<(OnNode, OnNode)> {
        let mut nodes: Vec<OnNode> = Vec::new();
        for slot in groups.get(index)?.slots() {
            let (NodeRank(node), Some(device)) = self.place(slot) else { continue };
            match nodes.last_mut() {
                Some((last, devices)) if *last == node => _ = devices.insert(device),
                _ => nodes.push((node, BTreeSet::from([device]))),
            }
        }
        let class = |node| class_of(inventory, node);
        let differs = |one: &OnNode, other: &OnNode| {
            class(one.0) == class(other.0) && !one.1.is_superset(&other.1) && !other.1.is_superset(&one.1)
        };
        let largest = nodes.iter().max_by_key(|(node, devices)| (devices.len(), std::cmp::Reverse(*node)))?;
        let other = nodes.iter().find(|other| differs(largest, other));
        let pair = other.map(|other| (largest, other)).or_else(|| {
            nodes
                .iter()
                .enumerate()
                .find_map(|(at, one)| Some((one, nodes[at..].iter().find(|other| differs(one, other))?)))
        });
        pair.map(
            |(one, other)| if one.0 < other.0 { (one.clone(), other.clone()) } else { (other.clone(), one.clone()) },
        )
    }
}

impl Indices {
    fn add(&mut self, devices: BTreeSet<u16>) {
        self.most = self.most.max(devices.len());
        self.all.extend(devices);
    }

    /// Whether no node has all of them.
    fn differ(&self) -> bool {
        self.all.len() > self.most
    }
}

fn class_of(inventory: &Inventory, node: u32) -> Class<'_> {
    let spec = inventory.spec(NodeRank(node));
    spec.map_or(("", 0), |spec| (spec.accelerator_type.as_str(), spec.accelerator_ids.len()))
}

impl<'a> Rows<'a> {
    /// The index of the stretch of a slot.
    fn stretch_of(&self, slot: u32) -> usize {
        self.equal.partition_point(|equal| equal.stretch.first_slot <= slot) - 1
    }

    fn devices(&self, equal: Equal<'_>) -> &'a [Option<u16>] {
        &self.slots.patterns[equal.stretch.pattern].devices
    }

    /// How many groups of a block leave their rails, and the index of the first one.
    fn block(&self, block: u32) -> (u32, Option<u32>) {
        let (step, size) = (self.groups.step(), self.groups.block());
        let (start, end) = (block * size, (block + 1) * size);
        let mut found: HashMap<(Class<'_>, u32), Indices> = HashMap::new();
        let mut divided: HashMap<(Class<'_>, u32, u32), BTreeSet<u16>> = HashMap::new();
        for &equal in self.equal[self.stretch_of(start)..].iter().take_while(|equal| equal.stretch.first_slot < end) {
            let (Equal { stretch, class, revisited }, devices) = (equal, self.devices(equal));
            let each = devices.len() as u32;
            let first = start.saturating_sub(stretch.first_slot) / each;
            let last = ((end - stretch.first_slot - 1) / each).min(stretch.nodes - 1);
            // Whole nodes repeat after as many as fill whole steps; the first and the last may be partly in the block.
            let period = if revisited { last - first } else { step / gcd(step, each) };
            for node in (first..=last.min(first + period)).chain((last > first + period).then_some(last)) {
                let first = stretch.first_slot + node * each;
                let mut here: HashMap<u32, BTreeSet<u16>> = HashMap::new();
                for (slot, device) in (first..).zip(devices).filter(|(slot, _)| (start..end).contains(slot)) {
                    here.entry((slot - start) % step).or_default().extend(device);
                }
                for (group, devices) in here {
                    if revisited {
                        divided.entry((class, group, stretch.node + node)).or_default().extend(devices);
                    } else {
                        found.entry((class, group)).or_default().add(devices);
                    }
                }
            }
        }
        for ((class, group, _), devices) in divided {
            found.entry((class, group)).or_default().add(devices);
        }
        let mut groups: Vec<_> =
            found.iter().filter(|(_, indices)| indices.differ()).map(|((_, group), _)| *group).collect();
        groups.sort_unstable();
        groups.dedup();
        (groups.len() as u32, groups.first().map(|group| block * step + group))
    }
}
