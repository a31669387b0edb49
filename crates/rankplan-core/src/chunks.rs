//! A rule of resources in any order.

use std::fmt::{Display, Formatter};

use crate::diagnostic::{Code, Diagnostic};
use crate::ids::{MAX_PROCESSES, MAX_RANK};
use crate::messages::{too_large, too_many_processes};
use crate::rank_set::{RankRange, RankSet, append, write_ranges};
use crate::syntax::parse_ranges;

/// Resources in any order, cut into consecutive chunks: `per_process` for each process.
///
/// Chunks may share a resource. A chunk may span nodes: the process runs on the node of its first resource.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Chunks {
    /// In the order written; a range is merged with the one before if it continues that.
    ranges: Vec<RankRange>,
    resources: u32,
    per_process: u32,
}

impl Chunks {
    /// These ranges of resources, in this order.
    ///
    /// # Errors
    /// One fault: `invalid-value` (chunks of 0, or more than 4,294,967,294 resources), `empty-placement`, `not-multiple` or
    /// `too-many-processes`.
    pub fn new(ranges: impl IntoIterator<Item = RankRange>, per_process: u32) -> Result<Self, Diagnostic> {
        let refuse = |code, message: String, help: String| Err(Diagnostic::new(code, message).help(help));
        let (mut merged, mut count) = (Vec::new(), 0);
        for range in ranges {
            count += u64::from(range.len());
            append(&mut merged, 0, range);
        }
        let each = u64::from(per_process);
        if per_process == 0 {
            return refuse(
                Code::InvalidValue,
                "per_process is 0; it must be at least 1".into(),
                "use 1 or more".into(),
            );
        }
        if count == 0 {
            return refuse(Code::EmptyPlacement, "no resources".into(), "name at least one".into());
        }
        if !count.is_multiple_of(each) {
            let message = format!("{count} resources cannot be divided into chunks of {per_process}");
            let below = count / each * each;
            let fewer = if below > 0 { format!("{below} resources, or ") } else { String::new() };
            return refuse(Code::NotMultiple, message, format!("name {fewer}{} more", below + each - count));
        }
        if count / each > u64::from(MAX_PROCESSES) {
            return Err(too_many_processes(count / each));
        }
        match u32::try_from(count) {
            Ok(resources) if resources <= MAX_RANK => Ok(Chunks { ranges: merged, resources, per_process }),
            _ => refuse(
                Code::InvalidValue,
                format!("the chunks name {count} resources; the limit is {MAX_RANK}"),
                "name fewer resources".into(),
            ),
        }
    }

    /// These resources, in this order.
    ///
    /// # Errors
    /// The faults of [`Chunks::new`], and `invalid-value` for a number above the largest rank.
    pub fn from_ranks(ranks: &[u32], per_process: u32) -> Result<Self, Diagnostic> {
        if let Some(&rank) = ranks.iter().find(|&&rank| rank > MAX_RANK) {
            return Err(too_large(rank));
        }
        Self::new(ranks.iter().filter_map(|&rank| RankRange::new(rank, rank)), per_process)
    }

    /// Read ranges separated by commas: `0-3,8-11,2`.
    ///
    /// # Errors
    /// The faults of [`Chunks::new`], and `syntax` or `reversed-range` for the text.
    pub fn parse(text: &str, per_process: u32) -> Result<Self, Diagnostic> {
        Self::new(parse_ranges(text)?, per_process)
    }

    /// The number of processes.
    pub fn world_size(&self) -> u32 {
        self.resources / self.per_process
    }

    /// The resources in the order written, as ranges.
    pub fn ranges(&self) -> &[RankRange] {
        &self.ranges
    }

    /// All resources in use.
    pub fn resources(&self) -> RankSet {
        RankSet::from_ranges(self.ranges.iter().copied())
    }

    /// The number of resources of each process.
    pub fn per_process(&self) -> u32 {
        self.per_process
    }
}

impl Display for Chunks {
    /// The canonical text: the ranges in the order written, `0-3,8-11,2`.
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        write_ranges(f, &self.ranges)
    }
}
