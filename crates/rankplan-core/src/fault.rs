//! Faults as they are found: small, without text. Only the reported ones get a text (`messages`).

use crate::ids::{NodeRank, ProcessRank};
use crate::rank_set::RankRange;
use crate::syntax::Span;

/// The largest number of faults of one placement that get a text; the last one tells how many were omitted.
pub const MAX_REPORTED: usize = 100;

/// A fault and its place.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fault {
    pub kind: Kind,
    pub span: Span,
}

impl Fault {
    /// A fault of a rule without text.
    pub fn unplaced(kind: Kind) -> Self {
        Fault { kind, span: Span::default() }
    }
}

/// The faults of a placement: their number, and the first ones in the order of their places.
///
/// Every segment can have one, so only those that can be reported are kept.
#[derive(Debug, Default)]
pub(crate) struct Faults {
    kept: Vec<Fault>,
    count: usize,
    /// Faults at this place or later come after [`MAX_REPORTED`] others.
    limit: Option<u32>,
}

impl Faults {
    pub fn push(&mut self, fault: Fault) {
        self.count += 1;
        if self.limit.is_none_or(|limit| fault.span.start < limit) {
            self.kept.push(fault);
            if self.kept.len() > 2 * MAX_REPORTED {
                self.first();
            }
        }
    }

    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// The faults to report, in order.
    pub fn first(&mut self) -> &mut [Fault] {
        self.kept.sort_by_key(|fault| fault.span.start);
        self.kept.truncate(MAX_REPORTED);
        self.limit = self.kept.get(MAX_REPORTED - 1).map(|last| last.span.start);
        &mut self.kept
    }

    /// The number of faults beyond those in [`Faults::first`].
    pub fn omitted(&self) -> usize {
        self.count.saturating_sub(MAX_REPORTED)
    }
}

impl Extend<Fault> for Faults {
    fn extend<I: IntoIterator<Item = Fault>>(&mut self, faults: I) {
        faults.into_iter().for_each(|fault| self.push(fault));
    }
}

/// The facts of a fault, as numbers.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Kind {
    ReversedRange {
        first: u32,
        last: u32,
    },
    /// `all` of an unknown number of resources.
    AllOfUnknown,
    NoResources,
    ResourceOutOfRange {
        range: RankRange,
        resources: u32,
    },
    /// A range with excluded resources.
    ExcludedResource {
        range: RankRange,
    },
    DuplicateResource {
        range: RankRange,
        earlier: Span,
        rest: Option<ProcessRest>,
    },
    ResourceOrder {
        range: RankRange,
        highest: u32,
        rest: Option<ProcessRest>,
    },
    ProcessStart {
        range: RankRange,
    },
    /// `lowest` and `expected` differ if bare ranges precede the segment, which may belong to it.
    ProcessGap {
        range: RankRange,
        lowest: u32,
        expected: u32,
    },
    AllProcesses {
        resources: u32,
    },
    /// `resources` are those that exist. An example of a fix may repeat the text only if it has no other fault.
    NotMultiple {
        resources: u32,
        processes: u32,
        processes_span: Span,
        example: bool,
    },
    TooManyProcesses {
        processes: u64,
    },
    SpansNodes {
        process: ProcessRank,
        from: NodeRank,
        to: NodeRank,
        per_process: u32,
    },
    MixedHardware {
        process: ProcessRank,
        first: u32,
        second: u32,
    },
    /// A process of chunks that has a resource twice.
    RepeatedResource {
        process: ProcessRank,
        node: NodeRank,
        index: u16,
    },
}

/// A bare range that may have been meant as more process ranks of the segment before: `0-3:0-1,2-3`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ProcessRest {
    /// The segment before, up to its colon.
    pub resources: Span,
    /// All its process ranks as one range.
    pub processes: RankRange,
}
