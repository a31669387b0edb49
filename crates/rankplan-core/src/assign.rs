//! Which process runs where: a rule and a pool to a table.
//!
//! In a segment with `m` resources and `k` processes, both ascending, process `i` gets resources `i*m/k .. (i+1)*m/k` when
//! `m >= k`, else resource `i / (k/m)`. All resources of a process are on one node and of one kind; only a chunk may span
//! nodes.

use crate::check::check;
use crate::chunks::Chunks;
use crate::diagnostic::{Code, Diagnostic};
use crate::fault::{Context, Fault, Faults, Kind};
use crate::ids::{ProcessRank, ResourceRank};
use crate::packed::Packed;
use crate::pool::{Block, Pool, ResourceKind};
use crate::rank_map::{RankMap, Segment};
use crate::rank_set::RankRange;
use crate::syntax::parse;
use crate::table::{Row, Table};

/// Read, check and assign a placement.
///
/// # Errors
/// Every fault of the text, in order.
pub fn place(text: &str, pool: &Pool) -> Result<(RankMap, Table), Vec<Diagnostic>> {
    let parts = parse(text).map_err(|fault| vec![fault])?;
    let mut faults = Faults::default();
    let map = check(&parts, Some(pool.len()), &mut faults);
    let table = segments(&map, pool, &mut faults);
    if faults.is_empty() {
        Ok((map.read_from(text), table))
    } else {
        Err(Context { text, pool: Some(pool) }.report(faults))
    }
}

/// Which resources each process uses, whatever nodes they are on.
#[derive(Clone, Copy, Debug)]
pub enum Rule<'a> {
    /// The segments of a placement.
    Map(&'a RankMap),
    /// The windows of the packed strategy.
    Packed(&'a Packed),
    /// Resources in any order.
    Chunks(&'a Chunks),
}

/// Apply a rule to resources that it may not have been checked against.
///
/// # Errors
/// `no-resources`, for packed windows also where nodes are counted; `resource-out-of-range`, `spans-nodes`,
/// `mixed-hardware`, and `duplicate-resource` within a chunk.
pub fn apply(rule: Rule<'_>, pool: &Pool) -> Result<Table, Vec<Diagnostic>> {
    let context = Context { text: if let Rule::Map(map) = rule { map.text() } else { "" }, pool: Some(pool) };
    let resources = pool.len();
    if pool.is_empty() {
        return Err(context.refuse(Kind::NoResources));
    }
    let outside = |range: RankRange| {
        let kind = Kind::ResourceOutOfRange { range, resources };
        (range.last() >= resources).then_some(Fault::unplaced(kind))
    };
    let mut faults: Faults = match rule {
        Rule::Map(map) => map.out_of_range(resources).collect(),
        Rule::Packed(packed) => {
            pool.require_hardware().map_err(|fault| vec![fault])?;
            outside(packed.range()).into_iter().collect()
        }
        Rule::Chunks(chunks) => {
            let highest = chunks.ranges().iter().map(|range| range.last()).max();
            highest.and_then(|rank| outside(RankRange::new(rank, rank)?)).into_iter().collect()
        }
    };
    if faults.is_empty() {
        let table = match rule {
            Rule::Map(map) => segments(map, pool, &mut faults),
            Rule::Packed(packed) => windows(packed, pool, &mut faults),
            Rule::Chunks(chunks) => cut(chunks, pool, &mut faults),
        };
        if faults.is_empty() {
            return Ok(table);
        }
    }
    Err(context.report(faults))
}

/// The resources of these processes in a pool, which need not be the one that they were placed on: those that the pool
/// counts where it counts hardware, else the node of each process.
///
/// # Errors
/// `resource-out-of-range` when a process has a resource that is not in the pool.
pub fn ranks_of(table: &Table, processes: impl Iterator<Item = u32>, pool: &Pool) -> Result<Vec<Vec<u32>>, Diagnostic> {
    let mut blocks = pool.by_place();
    let rows = processes.filter_map(|rank| table.row(ProcessRank(rank)));
    let ranks_of = |row: Row<'_>| {
        let kind = &table.groups()[row.group as usize].kind;
        let refuse = |what: String| {
            let message = format!("process {} has {what}, which the selected node groups do not have", row.rank);
            Diagnostic::new(Code::ResourceOutOfRange, message).help("select node groups that have it")
        };
        if pool.by_node() {
            let node = row.cluster_node_rank;
            let rank = blocks.rank(&ResourceKind::Node, node, 0).ok_or_else(|| refuse(format!("node {node}")))?;
            return Ok(vec![rank]);
        }
        if *kind == ResourceKind::Node {
            return Err(refuse(format!("node {} as a whole", row.cluster_node_rank)));
        }
        let rank = |(node, index): (_, u16)| {
            let found = blocks.rank(kind, node, index.into());
            found.ok_or_else(|| refuse(format!("{} {index} of node {node}", kind.noun(1))))
        };
        row.places().map(rank).collect()
    };
    rows.map(ranks_of).collect()
}

fn segments(map: &RankMap, pool: &Pool, faults: &mut Faults) -> Table {
    let devices = map.segments().map(|segment| segment.resources.max(segment.processes) as usize).sum();
    let mut builder = Builder::new(pool, map.world_size(), devices);
    for segment in map.segments() {
        let span = segment.span;
        let conflicts = builder.conflicts(&segment);
        let sound = conflicts.is_empty();
        conflicts.kinds().for_each(|kind| faults.push(Fault { kind, span }));
        if sound {
            builder.segment(&segment);
        }
    }
    builder.table
}

fn windows(packed: &Packed, pool: &Pool, faults: &mut Faults) -> Table {
    let mut builder = Builder::new(pool, packed.world_size(), packed.range().len() as usize);
    let mut conflicts = Conflicts::default();
    for process in 0..packed.world_size() {
        builder.process(process, packed.resources_of(process), packed.per_process(), &mut conflicts);
    }
    conflicts.kinds().for_each(|kind| faults.push(Fault::unplaced(kind)));
    builder.table
}

fn cut(chunks: &Chunks, pool: &Pool, faults: &mut Faults) -> Table {
    let (processes, per_process) = (chunks.world_size(), chunks.per_process());
    let mut builder = Builder::new(pool, processes, processes as usize * per_process as usize);
    let mut conflicts = Conflicts::default();
    let mut resources = chunks.ranges().iter().flat_map(|range| range.first()..=range.last());
    for process in 0..processes {
        builder.process(process, resources.by_ref().take(per_process as usize), per_process, &mut conflicts);
    }
    let rows = (0..processes).filter_map(|rank| builder.table.row(ProcessRank(rank)));
    let repeated = rows
        .map(|row| (row.rank, row.repeats()))
        .find_map(|(process, place)| place.map(|(node, index)| Kind::RepeatedResource { process, node, index }));
    conflicts.mixed_hardware.into_iter().chain(repeated).for_each(|kind| faults.push(Fault::unplaced(kind)));
    builder.table
}

/// What keeps processes from their resources: the first process that would need two nodes, and the first that would need
/// two hardware types.
#[derive(Default)]
struct Conflicts {
    spans_nodes: Option<Kind>,
    mixed_hardware: Option<Kind>,
}

impl Conflicts {
    /// Take note of a process that needs resources of these two blocks.
    fn note(&mut self, process: u32, first: Block, second: Block, per_process: u32) {
        let process = ProcessRank(process);
        if first.node != second.node && self.spans_nodes.is_none() {
            self.spans_nodes = Some(Kind::SpansNodes { process, from: first.node, to: second.node, per_process });
        }
        if first.kind != second.kind && self.mixed_hardware.is_none() {
            self.mixed_hardware = Some(Kind::MixedHardware { process, first: first.kind, second: second.kind });
        }
    }

    fn is_empty(&self) -> bool {
        self.spans_nodes.is_none() && self.mixed_hardware.is_none()
    }

    fn kinds(self) -> impl Iterator<Item = Kind> {
        self.spans_nodes.into_iter().chain(self.mixed_hardware)
    }
}

const NO_NODE: u32 = u32::MAX;

struct Builder<'a> {
    pool: &'a Pool,
    table: Table,
    /// By node rank, its placement node rank.
    placement_node: Vec<u32>,
    /// The block that the walk stands in.
    block: usize,
}

impl<'a> Builder<'a> {
    fn new(pool: &'a Pool, rows: u32, devices: usize) -> Self {
        let rows = rows as usize;
        let (mut device_starts, mut local) = (Vec::new(), Vec::new());
        if !pool.by_node() {
            device_starts.reserve_exact(rows + 1);
            device_starts.push(0);
            // A claim on more than a plan can have comes from a segment that will be refused.
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

    /// What keeps the segment from being assigned. A process has two blocks where a block ends inside its share.
    fn conflicts(&mut self, segment: &Segment<'_>) -> Conflicts {
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
                    conflicts.note(segment.first_process.0 + position / per_process, last, block, per_process);
                }
                last = Some(block);
                position += count;
            });
        }
        conflicts
    }

    /// Assign a segment that has no conflicts.
    fn segment(&mut self, segment: &Segment<'_>) {
        let Segment { ranges, resources, processes, .. } = *segment;
        if processes >= resources {
            if !self.pool.by_node() {
                // One device a process: the column runs on, whatever the blocks.
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

    /// Cut a range where blocks meet: step into each block, then take the local index of the first resource and how many.
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

    /// `count` resources of the current block from a local index on, each for `sharing` processes.
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

    /// One process with these resources, wherever they are; it runs where the first one is.
    fn process(
        &mut self,
        process: u32,
        resources: impl Iterator<Item = u32>,
        per_process: u32,
        conflicts: &mut Conflicts,
    ) {
        let mut home = None;
        for resource in resources {
            self.block = self.pool.block_of(ResourceRank(resource), self.block);
            let block = self.pool.block(self.block);
            let (first, _) = *home.get_or_insert((block, self.block));
            conflicts.note(process, first, block, per_process);
            if !self.pool.by_node() {
                if block.node != first.node {
                    self.table.elsewhere.push((self.table.devices.len() as u32, block.node.0));
                }
                self.table.devices.push((resource - self.pool.bounds(self.block).0) as u16);
            }
        }
        if !self.pool.by_node() {
            self.table.device_starts.push(self.table.devices.len() as u32);
        }
        self.block = home.map_or(self.block, |(_, block)| block);
        self.push(1);
    }

    /// `count` rows on the node of the current block.
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
