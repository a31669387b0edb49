//! Rows as runs: the processes on each node, with equal nodes folded.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use crate::ids::{NodeRank, ProcessRank};
use crate::table::Table;

/// Processes with consecutive ranks on one node, repeated on the following nodes.
///
/// On node `node + i`, ranks start at `first_rank + i * processes`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    /// The first node.
    pub node: NodeRank,
    /// The number of nodes, at least 1.
    pub nodes: u32,
    /// The first process rank on the first node.
    pub first_rank: ProcessRank,
    /// Index of the pattern in [`Runs::patterns`].
    pub pattern: u32,
}

/// The processes of a run on each of its nodes.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Pattern {
    /// Index of the group in [`Table::groups`]; of equal groups, the first.
    pub group: u32,
    /// Number of processes.
    pub processes: u32,
    /// By process, the end of its devices in `devices`; empty if placed by node.
    pub ends: Vec<u32>,
    /// Local indices of the resources of all processes.
    pub devices: Vec<u16>,
}

impl Pattern {
    /// The local indices of each process; empty if placed by node.
    pub fn by_process(&self) -> impl ExactSizeIterator<Item = &[u16]> {
        let mut start = 0;
        self.ends.iter().map(move |&end| &self.devices[std::mem::replace(&mut start, end as usize)..end as usize])
    }
}

/// The runs of a table in rank order, and their distinct patterns.
#[derive(Clone, Debug, Default)]
pub struct Runs {
    /// The runs.
    pub runs: Vec<Run>,
    /// The patterns.
    pub patterns: Vec<Arc<Pattern>>,
}

impl Table {
    /// The runs of these rows: consecutive ranks on one node, placed through one group.
    ///
    /// If processes of the table have resources on several nodes, each process is a run on each of its nodes; with `at_home`,
    /// it is on its own node with all its devices.
    pub fn runs(&self, ranks: impl Iterator<Item = u32>, at_home: bool) -> Runs {
        let mut folding =
            Folding { table: self, first_equal: self.first_equal(), known: HashMap::new(), found: Runs::default() };
        if self.elsewhere.is_empty() || at_home {
            folding.rows(ranks);
        } else {
            ranks.for_each(|rank| folding.pieces(ProcessRank(rank)));
        }
        folding.found
    }

    /// By group, the first equal one.
    fn first_equal(&self) -> Vec<u32> {
        let mut known = HashMap::new();
        (0..).zip(self.groups.iter()).map(|(index, group)| *known.entry(group).or_insert(index)).collect()
    }
}

struct Folding<'a> {
    table: &'a Table,
    first_equal: Vec<u32>,
    known: HashMap<Arc<Pattern>, u32>,
    found: Runs,
}

impl Folding<'_> {
    fn rows(&mut self, ranks: impl Iterator<Item = u32>) {
        let table = self.table;
        let (mut stretch, mut group) = (0..0, 0);
        let mut open: Option<(Range<u32>, u32)> = None;
        for rank in ranks {
            let node = table.cluster_node_rank[rank as usize];
            match &mut open {
                Some((run, on)) if run.end == rank && *on == node && stretch.contains(&rank) => run.end += 1,
                _ => {
                    if let Some((run, node)) = open.replace((rank..rank + 1, node)) {
                        self.row_run(run, node, group);
                    }
                    if !stretch.contains(&rank) {
                        (stretch, group) = table.stretch_of(rank);
                    }
                }
            }
        }
        if let Some((run, node)) = open {
            self.row_run(run, node, group);
        }
    }

    fn row_run(&mut self, ranks: Range<u32>, node: u32, group: u32) {
        let starts = &self.table.device_starts;
        let (first, processes) = (ranks.start, ranks.end - ranks.start);
        let ends = starts.get(first as usize + 1..=ranks.end as usize).unwrap_or_default();
        let start = starts.get(first as usize).copied().unwrap_or_default();
        self.add(node, first, processes, group, start, ends);
    }

    /// The resources of one process, node by node.
    fn pieces(&mut self, rank: ProcessRank) {
        let Some(row) = self.table.row(rank) else { return };
        let places: Vec<_> = row.places().collect();
        let mut start = row.first_device;
        for piece in places.chunk_by(|a, b| a.0 == b.0) {
            let end = start + piece.len() as u32;
            self.add(piece[0].0.0, rank.0, 1, row.group, start, &[end]);
            start = end;
        }
    }

    /// Add a run on one node. `start` and `ends` delimit the devices of its processes in [`Table::devices`].
    fn add(&mut self, node: u32, first_rank: u32, processes: u32, group: u32, start: u32, ends: &[u32]) {
        let group = self.first_equal[group as usize];
        let end = ends.last().copied().unwrap_or(start);
        let devices = &self.table.devices[start as usize..end as usize];
        let ends = ends.iter().map(|end| end - start);
        let Runs { runs, patterns } = &mut self.found;
        // Most runs equal the one before; comparing them first avoids a copy and a hash.
        let last = runs.last_mut().filter(|last| {
            let pattern = &patterns[last.pattern as usize];
            (pattern.group, pattern.processes) == (group, processes)
                && pattern.devices == devices
                && pattern.ends.iter().copied().eq(ends.clone())
        });
        let pattern = match last {
            Some(last)
                if last.node.0 + last.nodes == node && last.first_rank.0 + last.nodes * processes == first_rank =>
            {
                last.nodes += 1;
                return;
            }
            Some(last) => last.pattern,
            None => {
                let pattern = Arc::new(Pattern { group, processes, ends: ends.collect(), devices: devices.to_vec() });
                *self.known.entry(pattern).or_insert_with_key(|pattern| {
                    patterns.push(pattern.clone());
                    patterns.len() as u32 - 1
                })
            }
        };
        runs.push(Run { node: NodeRank(node), nodes: 1, first_rank: ProcessRank(first_rank), pattern });
    }
}
