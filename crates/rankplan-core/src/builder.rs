//! Rows to columns: writes a table process by process, or segment by segment.

use crate::fault::Kind;
use crate::ids::{ProcessRank, ResourceRank};
use crate::pool::{Block, Pool};
use crate::rank_map::Segment;
use crate::rank_set::RankRange;
use crate::table::Table;

/// The first process that would need two nodes, and the first that would need two hardware types.
#[derive(Default)]
pub(crate) struct Conflicts {
    spans_nodes: Option<Kind>,
    pub mixed_hardware: Option<Kind>,
}

impl Conflicts {
    /// Record the conflicts of a process that needs resources of these two blocks.
    fn record(&mut self, process: u32, first: Block, second: Block, per_process: u32) {
        let process = ProcessRank(process);
        if first.node != second.node && self.spans_nodes.is_none() {
            self.spans_nodes = Some(Kind::SpansNodes { process, from: first.node, to: second.node, per_process });
        }
        if first.kind != second.kind && self.mixed_hardware.is_none() {
            self.mixed_hardware = Some(Kind::MixedHardware { process, first: first.kind, second: second.kind });
        }
    }

    pub fn kinds(self) -> impl Iterator<Item = Kind> {
        self.spans_nodes.into_iter().chain(self.mixed_hardware)
    }
}

const NO_NODE: u32 = u32::MAX;

/// Writes the rows of a table.
pub(crate) struct Builder<'a> {
    pool: &'a Pool,
    pub table: Table,
    /// By node rank, its placement node rank.
    placement_node: Vec<u32>,
    /// The index of the current block.
    block: usize,
}

impl<'a> Builder<'a> {
    pub fn new(pool: &'a Pool, rows: u32, devices: usize) -> Self {
        let rows = rows as usize;
        let (mut device_starts, mut local) = (Vec::new(), Vec::new());
        if !pool.by_node() {
            device_starts.reserve_exact(rows + 1);
            device_starts.push(0);
            // A larger number comes from a segment that will be rejected.
            local.reserve_exact(devices.min(1 << 24));
        }
        let table = Table {
            groups: pool.groups().clone(),
            group_starts: Vec::new(),
            cluster_node_rank: Vec::with_capacity(rows),
            placement_node_rank: Vec::with_capacity(rows),
            local_rank: Vec::with_capacity(rows),
            local_world_size: Vec::new(),
            device_starts,
            devices: local,
            elsewhere: Vec::new(),
        };
        Builder { pool, table, placement_node: vec![NO_NODE; pool.num_nodes() as usize], block: 0 }
    }

    /// The conflicts of a segment. A process needs two blocks if a block ends within its share.
    pub fn conflicts(&mut self, segment: &Segment<'_>) -> Conflicts {
        let mut conflicts = Conflicts::default();
        let per_process = segment.resources / segment.processes;
        if per_process < 2 {
            return conflicts;
        }
        let (mut position, mut last): (u32, Option<Block>) = (0, None);
        for range in segment.ranges {
            self.pieces(*range, |builder, _, count| {
                let block = builder.pool.block(builder.block);
                if let Some(last) = last.filter(|_| !position.is_multiple_of(per_process)) {
                    conflicts.record(
                        segment.first_process.0.saturating_add(position / per_process),
                        last,
                        block,
                        per_process,
                    );
                }
                last = Some(block);
                position += count;
            });
        }
        conflicts
    }

    /// Assign the resources of a segment without conflicts to its processes.
    pub fn segment(&mut self, ranges: &[RankRange], resources: u32, processes: u32) {
        if processes >= resources {
            if !self.pool.by_node() {
                // One device per process, whatever the blocks.
                let first = self.table.devices.len() as u32;
                self.table.device_starts.extend(first + 1..=first + processes);
            }
            for range in ranges {
                self.pieces(*range, |builder, local, count| builder.share(local, count, processes / resources));
            }
            return;
        }
        let per_process = resources / processes;
        let mut open = 0;
        for range in ranges {
            self.pieces(*range, |builder, local, count| {
                let first = builder.table.devices.len() as u32 - open;
                builder.table.devices.extend((local..local + count).map(|index| index as u16));
                let complete = (open + count) / per_process;
                builder.table.device_starts.extend((1..=complete).map(|i| first + i * per_process));
                builder.push(complete);
                open = (open + count) % per_process;
            });
        }
    }

    /// Split a range at block boundaries. Each call of `take` gets the local index of the first resource and their number.
    fn pieces(&mut self, range: RankRange, mut take: impl FnMut(&mut Self, u32, u32)) {
        let mut rank = range.first();
        while rank <= range.last() {
            self.block = self.pool.block_of(ResourceRank(rank), self.block);
            let (start, end) = self.pool.bounds(self.block);
            let count = end.min(range.last() + 1) - rank;
            take(self, rank - start, count);
            rank += count;
        }
    }

    /// `count` resources of the current block, starting at a local index, each shared by this many processes.
    fn share(&mut self, local: u32, count: u32, sharing: u32) {
        if !self.pool.by_node() {
            if sharing == 1 {
                self.table.devices.extend((local..local + count).map(|index| index as u16));
            } else {
                let shared =
                    (local..local + count).flat_map(|index| std::iter::repeat_n(index as u16, sharing as usize));
                self.table.devices.extend(shared);
            }
        }
        self.push(count * sharing);
    }

    /// As many whole processes as the block of a resource has from this one up to the last one. Returns the number of their
    /// resources.
    pub fn whole_processes(&mut self, first: u32, last: u32, per_process: u32) -> u32 {
        let block = self.pool.block_of(ResourceRank(first), self.block);
        let (start, end) = self.pool.bounds(block);
        let processes = (end.min(last + 1) - first) / per_process;
        if processes == 0 {
            return 0;
        }
        self.block = block;
        let count = processes * per_process;
        if !self.pool.by_node() {
            let (local, before) = (first - start, self.table.devices.len() as u32);
            self.table.devices.extend((local..local + count).map(|index| index as u16));
            self.table.device_starts.extend((1..=processes).map(|process| before + process * per_process));
        }
        self.push(processes);
        count
    }

    /// One process with these resources on any nodes; it runs on the node of the first one.
    pub fn process(
        &mut self,
        process: u32,
        resources: impl Iterator<Item = u32>,
        per_process: u32,
        conflicts: &mut Conflicts,
    ) {
        let accelerated = !self.pool.by_node();
        let mut home = None;
        for resource in resources {
            self.block = self.pool.block_of(ResourceRank(resource), self.block);
            let home = *home.get_or_insert(self.block);
            if self.block != home {
                let (first, block) = (self.pool.block(home), self.pool.block(self.block));
                conflicts.record(process, first, block, per_process);
                if accelerated && block.node != first.node {
                    self.table.elsewhere.push((self.table.devices.len() as u32, block.node.0));
                }
            }
            if accelerated {
                self.table.devices.push((resource - self.pool.bounds(self.block).0) as u16);
            }
        }
        if accelerated {
            self.table.device_starts.push(self.table.devices.len() as u32);
        }
        self.block = home.unwrap_or(self.block);
        self.push(1);
    }

    /// Add `count` rows on the node of the current block.
    fn push(&mut self, count: u32) {
        if count == 0 {
            return;
        }
        let block = self.pool.block(self.block);
        let table = &mut self.table;
        let node = block.node.0;
        let placement = &mut self.placement_node[node as usize];
        if *placement == NO_NODE {
            *placement = table.local_world_size.len() as u32;
            table.local_world_size.push(0);
        }
        if table.group_starts.last().is_none_or(|&(_, group)| group != block.group) {
            table.group_starts.push((table.cluster_node_rank.len() as u32, block.group));
        }
        let size = &mut table.local_world_size[*placement as usize];
        table.cluster_node_rank.extend(std::iter::repeat_n(node, count as usize));
        table.placement_node_rank.extend(std::iter::repeat_n(*placement, count as usize));
        table.local_rank.extend(*size..*size + count);
        *size += count;
    }
}
