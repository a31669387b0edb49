//! The slots of a component, which parallel groups divide.
//!
//! A process with accelerators of its own has a slot per accelerator. A process without accelerators, or with one that another
//! process of the component uses too, is one slot. Slots are numbered in process order and stored folded, as runs are.

use std::borrow::Cow;
use std::collections::{BTreeSet, HashMap};
use std::ops::Range;
use std::sync::Arc;

use crate::groups::node_runs::{NodeRun, common, overlap};
use crate::groups::units::Units;
use crate::ids::{NodeRank, ProcessRank};
use crate::rank_set::RankSet;
use crate::runs::{Pattern as Rows, Run};
use crate::selection::ResourceKind;
use crate::table::Table;
use crate::words::plural;

/// The slots of a component.
#[derive(Clone, Debug)]
pub struct Slots {
    /// In slot order.
    pub(crate) stretches: Vec<Stretch>,
    pub(crate) patterns: Vec<Pattern>,
    /// By node.
    pub(crate) nodes: Units,
    /// Nodes in several stretches.
    pub(crate) revisited: RankSet,
    len: u32,
    processes: u32,
}

/// Slots of processes with consecutive ranks on one node, repeated on the following nodes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stretch {
    pub first_slot: u32,
    pub first_rank: u32,
    pub node: u32,
    pub nodes: u32,
    pub pattern: usize,
}

/// The slots of a stretch on each of its nodes.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Pattern {
    /// By process, the end of its slots.
    pub ends: Vec<u32>,
    /// By slot, the local index of its accelerator.
    pub devices: Vec<Option<u16>>,
}

impl Pattern {
    pub fn slots(&self) -> u32 {
        self.devices.len() as u32
    }
}

impl Slots {
    /// The slots of the processes of a table.
    pub fn of(table: &Table) -> Self {
        let found = table.runs(0..table.len(), false);
        let accelerated: Vec<_> = table.groups().iter().map(|group| group.kind == ResourceKind::Accelerator).collect();
        let mut folding = Folding { known: HashMap::new(), stretches: Vec::new(), patterns: Vec::new(), len: 0 };
        let shared = sharing(&found.runs, &found.patterns, &accelerated);
        let mut last_rank = None;
        for run in &found.runs {
            let rows = &found.patterns[run.pattern as usize];
            let accelerated = accelerated[rows.group as usize];
            let continues = last_rank == Some(run.first_rank.0);
            last_rank = Some(run.first_rank.0 + run.nodes * rows.processes - 1);
            if shared.is_empty() {
                folding.add(run, 0..run.nodes, slots_of(rows, accelerated, |_| false, continues), rows.processes);
                continue;
            }
            for node in 0..run.nodes {
                let first = run.first_rank.0 + node * rows.processes;
                let shares = |process| shared.binary_search(&(first + process)).is_ok();
                folding.add(
                    run,
                    node..node + 1,
                    slots_of(rows, accelerated, shares, continues && node == 0),
                    rows.processes,
                );
            }
        }
        let Folding { stretches, patterns, len, .. } = folding;
        let revisited = overlap(stretches.iter().map(|stretch| (stretch.node, stretch.nodes)));
        let nodes = Units::of(stretches.iter().map(|&Stretch { first_slot, node, nodes, pattern, .. }| NodeRun {
            first_slot,
            slots: patterns[pattern].slots(),
            node,
            nodes,
        }));
        Slots { stretches, patterns, nodes, revisited, len, processes: table.len() }
    }

    /// The slots by node.
    pub fn nodes(&self) -> &Units {
        &self.nodes
    }

    /// How many slots there are.
    pub fn len(&self) -> u32 {
        self.len
    }

    /// Whether there is no slot.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// How many processes there are.
    pub fn processes(&self) -> u32 {
        self.processes
    }

    /// The noun for this many slots: devices if each is an accelerator, processes if each is a process.
    pub fn noun(&self, count: u32) -> Cow<'static, str> {
        let devices = self.patterns.iter().flat_map(|pattern| &pattern.devices).all(Option::is_some);
        plural(
            count,
            if self.len == self.processes {
                "process"
            } else if devices {
                "device"
            } else {
                "slot"
            },
        )
    }

    /// The numbers of slots that processes with several have, ascending.
    pub fn per_process(&self) -> Vec<u32> {
        let mut found = BTreeSet::new();
        let mut open = (0, 0);
        for stretch in &self.stretches {
            let ends = &self.patterns[stretch.pattern].ends;
            let starts = std::iter::once(0).chain(ends.iter().copied());
            let counts: Vec<_> = ends.iter().zip(starts).map(|(end, start)| end - start).collect();
            let total = stretch.nodes * counts.len() as u32;
            // Only the first and the last process can have slots in other stretches.
            let middle = (1..total.saturating_sub(1)).take(counts.len());
            for process in std::iter::once(0).chain(middle).chain((total > 1).then(|| total - 1)) {
                let (rank, count) = (stretch.first_rank + process, counts[process as usize % counts.len()]);
                if rank != open.0 {
                    found.insert(std::mem::replace(&mut open, (rank, 0)).1);
                }
                open.1 += count;
            }
        }
        found.insert(open.1);
        found.into_iter().filter(|&count| count > 1).collect()
    }

    /// The slots of a process.
    pub fn of_process(&self, rank: ProcessRank) -> Option<Range<u32>> {
        (rank.0 < self.processes).then(|| self.start_of(rank.0)..self.start_of(rank.0 + 1))
    }

    /// The first slot of a process or, past the last process, the number of slots.
    pub fn start_of(&self, rank: u32) -> u32 {
        let holds = |stretch: &Stretch| {
            let processes = self.patterns[stretch.pattern].ends.len() as u32;
            stretch.first_rank + stretch.nodes * processes <= rank
        };
        let Some(stretch) = self.stretches.get(self.stretches.partition_point(holds)) else { return self.len };
        let pattern = &self.patterns[stretch.pattern];
        let offset = rank - stretch.first_rank;
        let (node, process) = (offset / pattern.ends.len() as u32, offset as usize % pattern.ends.len());
        let within = process.checked_sub(1).map_or(0, |before| pattern.ends[before]);
        stretch.first_slot + node * pattern.slots() + within
    }

    /// The process of a slot.
    pub fn process_of(&self, slot: u32) -> ProcessRank {
        let (stretch, node, within) = self.find(slot);
        let pattern = &self.patterns[stretch.pattern];
        let process = pattern.ends.partition_point(|&end| end <= within) as u32;
        ProcessRank(stretch.first_rank + node * pattern.ends.len() as u32 + process)
    }

    /// The node of a slot, and the local index of its accelerator.
    pub fn place(&self, slot: u32) -> (NodeRank, Option<u16>) {
        let (stretch, node, within) = self.find(slot);
        let device = self.patterns[stretch.pattern].devices.get(within as usize);
        (NodeRank(stretch.node + node), device.copied().flatten())
    }

    /// The stretch of a slot, the number of the node in it, and the slot's index on that node.
    fn find(&self, slot: u32) -> (Stretch, u32, u32) {
        let index = self.stretches.partition_point(|stretch| stretch.first_slot <= slot) - 1;
        let stretch = self.stretches[index];
        let (offset, slots) = (slot - stretch.first_slot, self.patterns[stretch.pattern].slots());
        (stretch, offset / slots, offset % slots)
    }

    /// The node and the accelerator of every slot, in slot order.
    pub(crate) fn places(&self) -> impl Iterator<Item = (u32, Option<u16>)> {
        self.stretches.iter().flat_map(|stretch| {
            let devices = &self.patterns[stretch.pattern].devices;
            let on = move |node| devices.iter().map(move |&device| (node, device));
            (stretch.node..stretch.node + stretch.nodes).flat_map(on)
        })
    }
}

/// The slots of processes; `shares` says whether a process uses an accelerator of another one. `continues`: the only process
/// has other devices in the run before.
fn slots_of(rows: &Rows, accelerated: bool, shares: impl Fn(u32) -> bool, continues: bool) -> Pattern {
    let (mut ends, mut slots) = (Vec::new(), Vec::new());
    let mut used = HashMap::new();
    if accelerated {
        rows.devices.iter().for_each(|&device| *used.entry(device).or_insert(0) += 1);
    }
    let mut by_process = rows.by_process();
    for process in 0..rows.processes {
        let devices = by_process.next().unwrap_or_default();
        let shared = shares(process) || devices.iter().any(|device| used.get(device).is_some_and(|&times| times > 1));
        match (accelerated, shared) {
            (false, _) => slots.push(None),
            (true, true) if continues => {}
            (true, true) => slots.push(devices.first().copied()),
            (true, false) => slots.extend(devices.iter().copied().map(Some)),
        }
        ends.push(slots.len() as u32);
    }
    Pattern { ends, devices: slots }
}

/// The processes that use an accelerator of a process in another run, ascending.
fn sharing(runs: &[Run], patterns: &[Arc<Rows>], accelerated: &[bool]) -> Vec<u32> {
    let revisited = overlap(runs.iter().map(|run| (run.node.0, run.nodes)));
    let mut uses: Vec<(u32, u16, u32)> = Vec::new();
    for run in runs.iter().filter(|run| accelerated[patterns[run.pattern as usize].group as usize]) {
        let rows = &patterns[run.pattern as usize];
        for node in common(&revisited, run.node.0, run.nodes) {
            let first = run.first_rank.0 + (node - run.node.0) * rows.processes;
            let devices =
                (first..).zip(rows.by_process()).flat_map(|(rank, all)| all.iter().map(move |&one| (one, rank)));
            uses.extend(devices.map(|(device, rank)| (node, device, rank)));
        }
    }
    uses.sort_unstable();
    let together = uses.chunk_by(|a, b| (a.0, a.1) == (b.0, b.1)).filter(|chunk| chunk.len() > 1);
    let mut found: Vec<_> = together.flatten().map(|&(.., rank)| rank).collect();
    found.sort_unstable();
    found.dedup();
    found
}

struct Folding {
    known: HashMap<Pattern, usize>,
    stretches: Vec<Stretch>,
    patterns: Vec<Pattern>,
    len: u32,
}

impl Folding {
    /// Add the slots of a run on some of its nodes.
    fn add(&mut self, run: &Run, nodes: Range<u32>, pattern: Pattern, processes: u32) {
        let slots = pattern.slots();
        if slots == 0 {
            return;
        }
        let index = self.patterns.len();
        let index = *self.known.entry(pattern).or_insert_with_key(|pattern| {
            self.patterns.push(pattern.clone());
            index
        });
        let (node, first_rank) = (run.node.0 + nodes.start, run.first_rank.0 + nodes.start * processes);
        let count = nodes.end - nodes.start;
        match self.stretches.last_mut() {
            Some(last)
                if last.pattern == index
                    && last.node + last.nodes == node
                    && last.first_rank + last.nodes * processes == first_rank =>
            {
                last.nodes += count;
            }
            _ => {
                let first_slot = self.len;
                self.stretches.push(Stretch { first_slot, first_rank, node, nodes: count, pattern: index });
            }
        }
        self.len += slots * count;
    }
}
