//! The rank map: the segments of a placement.

use std::fmt::{Display, Formatter};
use std::hash::{Hash, Hasher};

use crate::diagnostic::{Code, Diagnostic};
use crate::fault::{Fault, Kind};
use crate::ids::{MAX_PROCESSES, MAX_RANK, ProcessRank, ResourceRank};
use crate::messages::{too_large, too_many_processes, twice};
use crate::rank_set::{RankRange, RankSet, append, write_ranges};
use crate::syntax::Span;

/// The resources of each process, as segments: the first of `m` ascending resources belong to the first of `k` processes.
///
/// In every segment one size is a multiple of the other, and process ranks continue from segment to segment.
#[derive(Clone, Debug, Default)]
pub struct RankMap {
    segments: Vec<Stored>,
    ranges: Vec<RankRange>,
    world_size: u32,
    /// The text it was read from, if any.
    text: Box<str>,
}

#[derive(Clone, Copy, Debug)]
struct Stored {
    /// The index after the segment's last range.
    ranges_end: u32,
    resources: u32,
    first_process: u32,
    processes: u32,
    span: Span,
}

/// A part of a rank map: `resources[:processes]`.
#[derive(Clone, Copy, Debug)]
pub struct Segment<'a> {
    /// The resource ranks, in the order in which processes use them.
    pub ranges: &'a [RankRange],
    /// The number of resources.
    pub resources: u32,
    /// The rank of the first process.
    pub first_process: ProcessRank,
    /// The number of processes.
    pub processes: u32,
    /// The place in the text; empty without one.
    pub(crate) span: Span,
}

impl RankMap {
    /// The map in which process `i` uses `lists[i]`, after sorting the ranks of each process, and processes by their first
    /// rank. RLinf: `FlexiblePlacementStrategy.get_placement`.
    ///
    /// # Errors
    /// One fault: a process without a resource, a rank that a process names twice, or too many processes.
    pub fn from_lists(mut lists: Vec<Vec<u32>>) -> Result<Self, Diagnostic> {
        if lists.is_empty() {
            return Err(
                Diagnostic::new(Code::EmptyPlacement, "no processes").help("give one list of ranks per process")
            );
        }
        if lists.len() > MAX_PROCESSES as usize {
            return Err(too_many_processes(lists.len() as u64));
        }
        for (index, list) in lists.iter_mut().enumerate() {
            list.sort_unstable();
            if list.is_empty() {
                return Err(Diagnostic::new(Code::EmptyPlacement, format!("process {index} has no resource rank"))
                    .help("give every process at least one; to place by node, use NodePlacementStrategy"));
            }
            if let Some(rank) = list.last().copied().filter(|&rank| rank > MAX_RANK) {
                return Err(too_large(rank));
            }
            if let Some(pair) = list.windows(2).find(|pair| pair[0] == pair[1]) {
                return Err(twice(ResourceRank(pair[0])));
            }
        }
        lists.sort_by_key(|list| list[0]);
        let mut map = RankMap::default();
        for list in &lists {
            let ranges = list.chunk_by(|a, b| a + 1 == *b).filter_map(|run| RankRange::new(run[0], run[run.len() - 1]));
            map.push(ranges, map.world_size, 1, Span::default());
        }
        Ok(map)
    }

    /// The text that the map was read from, which its faults point into; empty without one.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The same map with the text that it was read from.
    pub(crate) fn read_from(mut self, text: &str) -> Self {
        self.text = text.into();
        self
    }

    /// The number of processes.
    pub fn world_size(&self) -> u32 {
        self.world_size
    }

    /// The number of segments.
    pub fn num_segments(&self) -> usize {
        self.segments.len()
    }

    /// The segments, in the order of their processes.
    pub fn segments(&self) -> impl Iterator<Item = Segment<'_>> {
        let mut start = 0;
        self.segments.iter().map(move |&Stored { ranges_end, resources, first_process, processes, span }| {
            let ranges = &self.ranges[start..ranges_end as usize];
            start = ranges_end as usize;
            Segment { ranges, resources, first_process: ProcessRank(first_process), processes, span }
        })
    }

    /// All resources in use.
    pub fn resources(&self) -> RankSet {
        RankSet::from_ranges(self.ranges.iter().copied())
    }

    /// The faults of ranges beyond this number of resources.
    pub(crate) fn out_of_range(&self, resources: u32) -> impl Iterator<Item = Fault> {
        self.segments().flat_map(move |segment| {
            let outside = segment.ranges.iter().filter(move |range| range.last() >= resources);
            outside.map(move |&range| Fault { kind: Kind::ResourceOutOfRange { range, resources }, span: segment.span })
        })
    }

    /// Make room for this many more segments of one range.
    pub(crate) fn reserve(&mut self, segments: usize) {
        self.segments.reserve(segments);
        self.ranges.reserve(segments);
    }

    /// Add a segment whose sizes fit; adjoining ranges are merged.
    pub(crate) fn push(
        &mut self,
        ranges: impl Iterator<Item = RankRange>,
        first_process: u32,
        processes: u32,
        span: Span,
    ) {
        let start = self.ranges.len();
        let mut resources = 0;
        for range in ranges {
            resources += range.len();
            append(&mut self.ranges, start, range);
        }
        self.world_size += processes;
        let ranges_end = self.ranges.len() as u32;
        self.segments.push(Stored { ranges_end, resources, first_process, processes, span });
    }

    /// Everything that distinguishes two maps, which excludes their text.
    fn key(&self) -> impl Iterator<Item = (&[RankRange], u32)> {
        self.segments().map(|segment| (segment.ranges, segment.processes))
    }
}

impl PartialEq for RankMap {
    fn eq(&self, other: &Self) -> bool {
        self.key().eq(other.key())
    }
}

impl Eq for RankMap {}

impl Hash for RankMap {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.key().for_each(|segment| segment.hash(state));
    }
}

impl Display for RankMap {
    /// The canonical text, which [`RankMap::read`] reads: every segment with its process range, `0-1:0-3,3-5:4-6`.
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        for (index, segment) in self.segments().enumerate() {
            if index > 0 {
                f.write_str(",")?;
            }
            write_ranges(f, segment.ranges)?;
            if let Some(processes) = RankRange::counted(segment.first_process.0, segment.processes) {
                write!(f, ":{processes}")?;
            }
        }
        Ok(())
    }
}

/// Whether one of the two sizes is a multiple of the other.
pub(crate) fn fits(resources: u32, processes: u32) -> bool {
    resources.is_multiple_of(processes) || processes.is_multiple_of(resources)
}
