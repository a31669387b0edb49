//! Which groups stay within a unit, a node or a domain, and which cross one.
//!
//! If the slots of a unit are consecutive, a group stays within it if its first and its last slot do. The number of such groups
//! is a quotient: one pass over folded runs of units. Groups that start on other units are compared slot by slot.

use std::ops::Range;

use crate::diagnostic::{Code, Diagnostic};
use crate::groups::layout::Layout;
use crate::groups::node_runs::NodeRun;
use crate::groups::parallel::{Groups, Kind};
use crate::groups::slots::Slots;
use crate::groups::units::Units;
use crate::ids::NodeRank;
use crate::inventory::Inventory;
use crate::rank_set::RankSet;

/// How many groups of one kind stay within a unit and how many cross.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Spans {
    /// Groups in one unit.
    pub within: u32,
    /// Groups in several units.
    pub crossing: u32,
    /// The index of the first group that crosses.
    pub first_crossing: Option<u32>,
}

/// The groups of one kind, on nodes with consecutive slots.
#[derive(Clone, Copy)]
struct Extent {
    groups: Groups,
    /// From the first slot of a group to its last.
    reach: u32,
}

impl Extent {
    /// How many groups start in `start..end` and end before `end`.
    fn within(self, start: u32, end: u32) -> u32 {
        let last_start = end.saturating_sub(self.reach).max(start);
        self.groups.starting_before(last_start) - self.groups.starting_before(start)
    }

    /// The first group that starts in `start..end` and ends at `end` or later.
    fn first_crossing(self, start: u32, end: u32) -> Option<u32> {
        let late = end.saturating_sub(self.reach).max(start);
        let group = self.groups.starting_before(late);
        (group < self.groups.starting_before(end)).then_some(group)
    }

    /// How many groups are within one of the nodes of a run.
    ///
    /// The pattern of groups on a node repeats after as many nodes as fill whole blocks.
    fn within_run(self, run: NodeRun) -> u32 {
        if self.reach >= run.slots {
            return 0;
        }
        let period = self.period(run);
        let sum = |count: u32| (0..count).map(|index| self.within_node(run, index)).sum::<u32>();
        let (times, rest) = (run.nodes / period, run.nodes % period);
        if times == 0 { sum(rest) } else { times * sum(period) + sum(rest) }
    }

    fn within_node(self, run: NodeRun, index: u32) -> u32 {
        let start = run.first_slot + index * run.slots;
        self.within(start, start + run.slots)
    }

    fn period(self, run: NodeRun) -> u32 {
        self.groups.block() / gcd(self.groups.block(), run.slots)
    }

    /// The first group that crosses from one of the nodes of a run.
    fn first_crossing_of_run(self, run: NodeRun) -> Option<u32> {
        if self.reach >= run.slots {
            let all = Extent { reach: run.end() - run.first_slot, ..self };
            return all.first_crossing(run.first_slot, run.end());
        }
        let mut starts = (0..run.nodes.min(self.period(run))).map(|index| run.first_slot + index * run.slots);
        starts.find_map(|start| self.first_crossing(start, start + run.slots))
    }
}

impl Units {
    /// Where the groups of one kind are.
    pub fn spans(&self, groups: Groups) -> Spans {
        if groups.size() == 1 {
            return Spans { within: groups.len(), ..Spans::default() };
        }
        let extent = Extent { groups, reach: (groups.size() - 1) * groups.step() };
        let mut spans = Spans::default();
        let mut add = |within: u32, crossing: Option<u32>| {
            spans.within += within;
            spans.first_crossing = [spans.first_crossing, crossing].into_iter().flatten().min();
        };
        for run in &self.runs {
            for (part, revisited) in run.parts(&self.revisited) {
                if revisited {
                    let first = groups.starting_before(part.first_slot)..groups.starting_before(part.end());
                    let (within, crossing) = one_by_one(groups, first, &self.by_slot);
                    add(within, crossing);
                } else {
                    add(extent.within_run(part), extent.first_crossing_of_run(part));
                }
            }
        }
        Spans { crossing: groups.len() - spans.within, ..spans }
    }
}

impl Slots {
    /// Which groups of one kind cross a node.
    pub fn spans(&self, groups: Groups) -> Spans {
        self.nodes.spans(groups)
    }

    /// Slots of a group as a message names them: `ranks 4-7`, or `devices 0,8,16,24`.
    pub fn named(&self, groups: Groups, index: u32) -> String {
        let Some(group) = groups.get(index) else { return String::new() };
        let noun = if self.len() == self.processes() { "ranks".into() } else { self.noun(2) };
        if group.step == 1 {
            return format!("{noun} {}-{}", group.first, group.last());
        }
        let shown: RankSet = group.slots().take(MOST_NAMED).collect();
        match group.count as usize {
            ..=MOST_NAMED => format!("{noun} {shown}"),
            _ => format!("{noun} {shown},...,{}", group.last()),
        }
    }

    /// The warnings for groups that should stay within a node and cross one, one for each kind.
    pub fn span_warnings(&self, layout: &Layout, inventory: &Inventory, name: &str) -> Vec<Diagnostic> {
        let kinds = [Kind::Tp, Kind::Cp, Kind::Etp].into_iter().filter(|&kind| layout.size(kind) > 1);
        kinds.filter_map(|kind| self.span_warning(layout.groups(kind), kind, inventory, name)).collect()
    }

    fn span_warning(&self, groups: Groups, kind: Kind, inventory: &Inventory, name: &str) -> Option<Diagnostic> {
        let spans = self.spans(groups);
        let index = spans.first_crossing?;
        let nodes: RankSet = groups.get(index)?.slots().map(|slot| self.place(slot).0.0).collect();
        let (named, total) = (self.named(groups, index), groups.len());
        let found = if spans.crossing == 1 {
            format!("{} group {index} ({named}) spans nodes {nodes}", kind.word())
        } else {
            let several = format!("{} of {total} {} groups span nodes", spans.crossing, kind.word());
            format!("{several}; the first is group {index} ({named}) on nodes {nodes}")
        };
        let most = self.nodes.runs.iter().map(|run| run.slots.max(accelerators(inventory, *run))).max().unwrap_or(0);
        let (fitting, noun) = (most / groups.step(), self.noun(2));
        let help = if fitting < 2 {
            let (name, needed) = (kind.name(), 2 * groups.step());
            format!(
                "{name} 2 needs {needed} consecutive {noun} on one node, and nodes have at most {most}: use {name} 1"
            )
        } else if groups.size() > fitting {
            format!("use {} {fitting} or less: nodes have at most {most} {noun}", kind.name())
        } else {
            format!("place each {} consecutive {noun} on one node", groups.block())
        };
        Some(Diagnostic::new(Code::GroupSpans, format!("{name}: {found}")).help(help))
    }
}

/// The most accelerators on a node of a run.
fn accelerators(inventory: &Inventory, run: NodeRun) -> u32 {
    let count = |node| inventory.spec(NodeRank(node)).map_or(0, |spec| spec.accelerator_ids.len());
    (run.node..run.node + run.nodes).map(count).max().unwrap_or(0) as u32
}

/// How many of these groups are on one node, and the first that is not; `nodes` has the node of each slot.
fn one_by_one(groups: Groups, indices: Range<u32>, nodes: &[u32]) -> (u32, Option<u32>) {
    let (mut within, mut crossing) = (0, None);
    for (index, group) in indices.filter_map(|index| Some((index, groups.get(index)?))) {
        let node = nodes[group.first as usize];
        if group.slots().all(|slot| nodes[slot as usize] == node) {
            within += 1;
        } else {
            crossing = crossing.or(Some(index));
        }
    }
    (within, crossing)
}

/// Slots of a group that a message names one by one.
const MOST_NAMED: usize = 8;

pub(crate) fn gcd(a: u32, b: u32) -> u32 {
    if b == 0 { a } else { gcd(b, a % b) }
}
