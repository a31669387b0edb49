//! A rule and a pool to a table: which process runs where.
//!
//! In a segment with `m` resources and `k` processes, both ascending, process `i` gets resources `i*m/k .. (i+1)*m/k` when
//! `m >= k`, else resource `i / (k/m)`. All resources of a process are on one node and of one type; only a chunk may span
//! nodes.
//!
//! RLinf: `ComponentPlacement._rank_map_to_process_resources_map`.

use crate::builder::{Builder, Conflicts};
use crate::check::check;
use crate::chunks::Chunks;
use crate::diagnostic::{Code, Diagnostic};
use crate::fault::{Fault, Faults, Kind};
use crate::ids::ProcessRank;
use crate::messages::Context;
use crate::packed::Packed;
use crate::pool::Pool;
use crate::rank_map::RankMap;
use crate::rank_set::RankRange;
use crate::selection::ResourceKind;
use crate::table::{Row, Table};

/// Read, check and assign a placement.
///
/// # Errors
/// Every fault of the text, in order.
pub fn place(text: &str, pool: &Pool) -> Result<(RankMap, Table), Vec<Diagnostic>> {
    let mut faults = Faults::default();
    let map = check(text, Some(pool.len()), pool.excluded(), &mut faults).map_err(|fault| vec![fault])?;
    let table = segments(&map, pool, &mut faults);
    if faults.is_empty() { Ok((map, table)) } else { Err(Context { text, pool: Some(pool) }.report(faults)) }
}

/// Which resource ranks each process uses, independent of nodes.
#[derive(Clone, Copy, Debug)]
pub enum Rule<'a> {
    /// The segments of a placement.
    Map(&'a RankMap),
    /// The windows of the packed strategy.
    Packed(&'a Packed),
    /// Resources in any order.
    Chunks(&'a Chunks),
}

/// Apply a rule to a pool.
///
/// # Errors
/// `no-resources` (for packed windows also if the pool counts nodes), `resource-out-of-range`, `spans-nodes`,
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
    let mut faults = Faults::default();
    match rule {
        Rule::Map(map) => faults.extend(map.out_of_range(resources)),
        Rule::Packed(packed) => {
            pool.require_hardware().map_err(|fault| vec![fault])?;
            faults.extend(outside(packed.range()));
        }
        Rule::Chunks(chunks) => {
            let highest = chunks.ranges().iter().map(|range| range.last()).max();
            faults.extend(highest.and_then(|rank| outside(RankRange::new(rank, rank)?)));
        }
    }
    let parts = |ranges: &[RankRange]| {
        let range = ranges.iter().copied().find(|&range| !pool.excluded_in(range).is_empty())?;
        Some(Fault::unplaced(Kind::ExcludedResource { range }))
    };
    if !pool.excluded().is_empty() {
        faults.extend(match rule {
            Rule::Map(map) => parts(map.resources().ranges()),
            Rule::Packed(packed) => parts(&[packed.range()]),
            Rule::Chunks(chunks) => parts(chunks.ranges()),
        });
    }
    if faults.is_empty() {
        let table = match rule {
            Rule::Map(map) => segments(map, pool, &mut faults),
            Rule::Packed(packed) => windows(packed, pool, &mut faults),
            Rule::Chunks(rule) => chunks(rule, pool, &mut faults),
        };
        if faults.is_empty() {
            return Ok(table);
        }
    }
    Err(context.report(faults))
}

/// The inverse of [`apply`]: the resource ranks of these processes in a pool, which may be another one than they were placed
/// on. If the pool counts nodes, the rank of each process's node.
///
/// # Errors
/// `resource-out-of-range` if a process has a resource outside the pool.
pub fn ranks_of(table: &Table, processes: impl Iterator<Item = u32>, pool: &Pool) -> Result<Vec<Vec<u32>>, Diagnostic> {
    let mut blocks = pool.by_place();
    let rows = processes.filter_map(|rank| table.row(ProcessRank(rank)));
    let ranks_of = |row: Row<'_>| {
        let kind = &table.groups()[row.group as usize].kind;
        let refuse = |what: String| {
            let message = format!("process {} uses {what}, which is outside the selected node groups", row.rank);
            Diagnostic::new(Code::ResourceOutOfRange, message).help("select node groups that contain it")
        };
        if pool.by_node() {
            let node = row.cluster_node_rank;
            let rank = blocks.rank(&ResourceKind::Node, node, 0).ok_or_else(|| refuse(format!("node {node}")))?;
            return Ok(vec![rank]);
        }
        if *kind == ResourceKind::Node {
            return Err(refuse(format!("the whole node {}", row.cluster_node_rank)));
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
        faults.extend(conflicts.kinds().map(|kind| Fault { kind, span }));
        // A faulty placement needs no table.
        if faults.is_empty() {
            builder.segment(segment.ranges, segment.resources, segment.processes);
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
    faults.extend(conflicts.kinds().map(Fault::unplaced));
    builder.table
}

/// Processes with one resource each are a segment. Others are written together if they are within a block. A process that
/// needs more than one block, or more than one range, is gathered resource by resource; only such a process can have a
/// resource twice, or on another node.
fn chunks(chunks: &Chunks, pool: &Pool, faults: &mut Faults) -> Table {
    let (processes, per_process) = (chunks.world_size(), chunks.per_process());
    let mut builder = Builder::new(pool, processes, processes as usize * per_process as usize);
    if per_process == 1 {
        builder.segment(chunks.ranges(), processes, processes);
        return builder.table;
    }
    let mut conflicts = Conflicts::default();
    let mut gathered = Vec::with_capacity(per_process as usize);
    let mut in_pieces = Vec::new();
    for range in chunks.ranges() {
        let mut rank = range.first();
        while rank <= range.last() {
            if gathered.is_empty() {
                let written = builder.whole_processes(rank, range.last(), per_process);
                if written > 0 {
                    rank += written;
                    continue;
                }
            }
            gathered.push(rank);
            rank += 1;
            if gathered.len() == per_process as usize {
                let process = builder.table.len();
                in_pieces.push(process);
                builder.process(process, gathered.drain(..), per_process, &mut conflicts);
            }
        }
    }
    let rows = in_pieces.into_iter().filter_map(|rank| builder.table.row(ProcessRank(rank)));
    let repeated = rows
        .map(|row| (row.rank, row.repeats()))
        .find_map(|(process, place)| place.map(|(node, index)| Kind::RepeatedResource { process, node, index }));
    faults.extend(conflicts.mixed_hardware.into_iter().chain(repeated).map(Fault::unplaced));
    builder.table
}
