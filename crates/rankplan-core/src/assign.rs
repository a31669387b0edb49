//! Which process runs where: segments, or the windows of the packed strategy, to a table.
//!
//! In a segment with `m` resources and `k` processes, both ascending, process `i` gets resources `i*m/k .. (i+1)*m/k` when
//! `m >= k`, else resource `i / (k/m)`. All resources of a process are on one node and of one kind.

use crate::check::check;
use crate::diagnostic::{Code, Diagnostic};
use crate::fault::{Context, Fault, Faults, Kind, either, too_many_processes};
use crate::ids::{MAX_PROCESSES, ProcessRank, ResourceRank};
use crate::rank_map::{RankMap, Segment};
use crate::rank_set::RankRange;
use crate::syntax::parse;
use crate::table::Table;
use crate::topology::{Block, Pool};

/// Read, check and assign a placement.
///
/// # Errors
/// Every fault of the text, in order.
pub fn place(text: &str, pool: &Pool) -> Result<(RankMap, Table), Vec<Diagnostic>> {
    let parts = parse(text).map_err(|fault| vec![fault])?;
    let mut faults = Faults::default();
    let map = check(&parts, Some(pool.len()), &mut faults);
    let table = assign(&map, pool, &mut faults);
    if faults.is_empty() { Ok((map, table)) } else { Err(Context { text, pool: Some(pool) }.report(faults)) }
}

/// Assign a rank map to resources that it may not have been checked against. `text` is what the map was read from, or
/// empty.
///
/// # Errors
/// `no-resources`, `resource-out-of-range`, `spans-nodes`, `mixed-hardware`.
pub fn place_map(map: &RankMap, text: &str, pool: &Pool) -> Result<Table, Vec<Diagnostic>> {
    let context = Context { text, pool: Some(pool) };
    if pool.is_empty() {
        return Err(context.refuse(Kind::NoResources));
    }
    let mut faults: Faults = map.out_of_range(pool.len()).collect();
    if faults.is_empty() {
        let table = assign(map, pool, &mut faults);
        if faults.is_empty() {
            return Ok(table);
        }
    }
    Err(context.report(faults))
}

fn assign(map: &RankMap, pool: &Pool, faults: &mut Faults) -> Table {
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

/// Resources in the order written, cut into consecutive chunks: `per_process` for each process. A chunk may span nodes; the
/// process runs where its first resource is. Resources may be in several chunks.
///
/// # Errors
/// One fault of each kind: `no-resources`, `invalid-value` for chunks of 0, `not-multiple`, `too-many-processes`,
/// `resource-out-of-range`, `duplicate-resource` within a chunk, `mixed-hardware`.
pub fn place_chunks(resources: &[u32], per_process: u32, pool: &Pool) -> Result<Table, Vec<Diagnostic>> {
    let refuse = |code, message: String, help: String| Err(vec![Diagnostic::new(code, message).help(help)]);
    let count = resources.len() as u64;
    if pool.is_empty() {
        return Err(Context { text: "", pool: Some(pool) }.refuse(Kind::NoResources));
    }
    if per_process == 0 {
        return refuse(Code::InvalidValue, "chunks of 0 resources".into(), "use 1 or more".into());
    }
    if !count.is_multiple_of(u64::from(per_process)) {
        let message = format!("{count} resources cannot be cut into chunks of {per_process}");
        let below = count / u64::from(per_process) * u64::from(per_process);
        let fewer = if below > 0 { format!("{below} resources, or ") } else { String::new() };
        let help = format!("name {fewer}{} more", below + u64::from(per_process) - count);
        return refuse(Code::NotMultiple, message, help);
    }
    if count / u64::from(per_process) > u64::from(MAX_PROCESSES) {
        return Err(vec![too_many_processes(count / u64::from(per_process))]);
    }
    let beyond = resources.iter().max().filter(|&&highest| highest >= pool.len());
    if let Some(range) = beyond.and_then(|&highest| RankRange::new(highest, highest)) {
        let kind = Kind::ResourceOutOfRange { range, resources: pool.len() };
        return Err(Context { text: "", pool: Some(pool) }.refuse(kind));
    }
    let mut builder = Builder::new(pool, (count / u64::from(per_process)) as u32, resources.len());
    let mut conflicts = Conflicts::default();
    for (process, chunk) in (0..).zip(resources.chunks_exact(per_process as usize)) {
        builder.chunk(process, chunk, &mut conflicts);
    }
    let faults = conflicts.mixed_hardware.into_iter().map(Fault::unplaced).collect();
    let mut diagnostics = Context { text: "", pool: Some(pool) }.report(faults);
    let repeated = (0..builder.table.len())
        .filter_map(|rank| builder.table.row(ProcessRank(rank)))
        .find_map(|row| row.repeats().map(|place| (row.rank, place)));
    if let Some((process, (node, index))) = repeated {
        let message = format!("process {process} is given resource {index} of node {node} twice");
        diagnostics
            .push(Diagnostic::new(Code::DuplicateResource, message).help("name each resource of a process once"));
    }
    if diagnostics.is_empty() { Ok(builder.table) } else { Err(diagnostics) }
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

/// The packed strategy: windows of `per_process * stride` consecutive resources; process `j` of a window takes every
/// `stride`-th from its `j`-th on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Packed {
    range: RankRange,
    per_process: u32,
    stride: u32,
}

impl Packed {
    /// Resources `start..=end`, `per_process` for each process, `stride` apart.
    ///
    /// # Errors
    /// `invalid-value` for a count of 0, `reversed-range`, `not-multiple` when the windows do not fill the range, or
    /// `too-many-processes`.
    pub fn new(start: u32, end: u32, per_process: u32, stride: u32) -> Result<Self, Diagnostic> {
        if per_process == 0 || stride == 0 {
            let name = if stride == 0 { "stride" } else { "num_hardware_per_process" };
            return Err(Diagnostic::new(Code::InvalidValue, format!("{name} is 0")).help("use 1 or more"));
        }
        let range = RankRange::new(start, end).ok_or_else(|| crate::syntax::reversed_range(start, end))?;
        let window = u64::from(per_process) * u64::from(stride);
        let count = u64::from(range.len());
        if !count.is_multiple_of(window) {
            let message =
                format!("{count} resources cannot be packed in windows of {per_process} x {stride} = {window}");
            let below = count / window * window;
            let fits = either([below, below + window]);
            return Err(Diagnostic::new(Code::NotMultiple, message).help(format!("use {fits} resources")));
        }
        let processes = count / u64::from(per_process);
        if processes > u64::from(MAX_PROCESSES) {
            return Err(too_many_processes(processes));
        }
        Ok(Packed { range, per_process, stride })
    }

    /// How many processes there are.
    pub fn world_size(&self) -> u32 {
        self.range.len() / self.per_process
    }

    /// What [`Packed::new`] was given.
    pub fn arguments(&self) -> (u32, u32, u32, u32) {
        (self.range.first(), self.range.last(), self.per_process, self.stride)
    }

    /// The resource ranks that are used.
    pub fn range(&self) -> RankRange {
        self.range
    }

    /// Assign the processes to resources.
    ///
    /// # Errors
    /// One fault: `no-resources`, `resource-out-of-range`, `spans-nodes` or `mixed-hardware`.
    pub fn place(&self, pool: &Pool) -> Result<Table, Vec<Diagnostic>> {
        let refuse = |kind| Context { text: "", pool: Some(pool) }.refuse(kind);
        let (range, resources) = (self.range, pool.len());
        if range.last() >= resources {
            return Err(refuse(if resources == 0 {
                Kind::NoResources
            } else {
                Kind::ResourceOutOfRange { range, resources }
            }));
        }
        let mut builder = Builder::new(pool, self.world_size(), range.len() as usize);
        let mut conflicts = Conflicts::default();
        for process in 0..self.world_size() {
            let (window, position) = (process / self.stride, process % self.stride);
            let first = range.first() + window * self.per_process * self.stride + position;
            let resources = (0..self.per_process).map(|i| first + i * self.stride);
            builder.strided(process, resources, self.per_process, &mut conflicts);
        }
        let faults: Faults = conflicts.kinds().map(Fault::unplaced).collect();
        if faults.is_empty() { Ok(builder.table) } else { Err(Context { text: "", pool: Some(pool) }.report(faults)) }
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

    /// One process with these resources; they may leave the block only into a conflict.
    fn strided(
        &mut self,
        process: u32,
        resources: impl Iterator<Item = u32>,
        per_process: u32,
        conflicts: &mut Conflicts,
    ) {
        let mut home: Option<Block> = None;
        for resource in resources {
            self.block = self.pool.block_of(ResourceRank(resource), self.block);
            let block = self.pool.block(self.block);
            conflicts.note(process, *home.get_or_insert(block), block, per_process);
            self.table.devices.push((resource - self.pool.bounds(self.block).0) as u16);
        }
        self.table.device_starts.push(self.table.devices.len() as u32);
        self.push(1);
    }

    /// One process with these resources, wherever they are; it runs where the first one is.
    fn chunk(&mut self, process: u32, resources: &[u32], conflicts: &mut Conflicts) {
        let mut home = None;
        for &resource in resources {
            self.block = self.pool.block_of(ResourceRank(resource), self.block);
            let block = self.pool.block(self.block);
            let (first, _) = *home.get_or_insert((block, self.block));
            conflicts.note(process, first, block, resources.len() as u32);
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
