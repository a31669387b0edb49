//! A rule of windows: the packed strategy.
//!
//! RLinf: `PackedPlacementStrategy.get_placement`, where each process starts at the first resource that is still free.

use crate::diagnostic::{Code, Diagnostic};
use crate::ids::MAX_PROCESSES;
use crate::messages::too_many_processes;
use crate::rank_set::RankRange;
use crate::syntax::reversed_range;
use crate::words::either;

/// Windows of `per_process * stride` consecutive resources. Process `j` of a window takes every `stride`-th resource,
/// starting with the `j`-th.
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
    /// One fault: `invalid-value` for a 0, `reversed-range`, `not-multiple` if the windows do not fill the range, or
    /// `too-many-processes`.
    pub fn new(start: u32, end: u32, per_process: u32, stride: u32) -> Result<Self, Diagnostic> {
        if per_process == 0 || stride == 0 {
            let name = if stride == 0 { "stride" } else { "num_hardware_per_process" };
            return Err(Diagnostic::new(Code::InvalidValue, format!("{name} is 0; it must be at least 1"))
                .help("use 1 or more"));
        }
        let range = RankRange::new(start, end).ok_or_else(|| reversed_range(start, end))?;
        let window = u64::from(per_process) * u64::from(stride);
        let count = u64::from(range.len());
        if !count.is_multiple_of(window) {
            let message =
                format!("{count} resources cannot be divided into windows of {per_process} x {stride} = {window}");
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

    /// The number of processes.
    pub fn world_size(&self) -> u32 {
        self.range.len() / self.per_process
    }

    /// The resources in use.
    pub fn range(&self) -> RankRange {
        self.range
    }

    /// The number of resources of each process.
    pub fn per_process(&self) -> u32 {
        self.per_process
    }

    /// The distance between two resources of a process.
    pub fn stride(&self) -> u32 {
        self.stride
    }

    /// The resources of a process.
    pub fn resources_of(&self, process: u32) -> impl Iterator<Item = u32> + use<> {
        let Packed { range, per_process, stride } = *self;
        let first = range.first() + process / stride * per_process * stride + process % stride;
        (0..per_process).map(move |index| first + index * stride)
    }
}
