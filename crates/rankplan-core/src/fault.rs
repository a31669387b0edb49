//! Faults as they are found: small, without a text. The texts are made only for those that are shown.

use crate::diagnostic::{Code, Diagnostic};
use crate::ids::{MAX_PROCESSES, MAX_RANK, NodeRank, ProcessRank, ResourceRank};
use crate::pool::{Pool, count, plural};
use crate::rank_set::RankRange;
use crate::syntax::{Span, reversed_range};

/// The most faults of one placement that get a text; the last one says how many more there are.
pub const MAX_REPORTED: usize = 100;

/// A fault and its place.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fault {
    pub kind: Kind,
    pub span: Span,
}

impl Fault {
    /// A fault of something that has no text.
    pub fn unplaced(kind: Kind) -> Self {
        Fault { kind, span: Span::default() }
    }
}

/// The faults of a placement: how many, and the first of them in the order of their places.
///
/// There can be as many as there are segments, and only the first ones are told: the others are counted, not kept.
#[derive(Debug, Default)]
pub(crate) struct Faults {
    first: Vec<Fault>,
    count: usize,
}

impl Faults {
    pub fn push(&mut self, fault: Fault) {
        self.count += 1;
        self.first.push(fault);
        if self.first.len() > 2 * MAX_REPORTED {
            self.keep_first();
        }
    }

    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    fn keep_first(&mut self) {
        self.first.sort_by_key(|fault| fault.span.start);
        self.first.truncate(MAX_REPORTED);
    }
}

impl FromIterator<Fault> for Faults {
    fn from_iter<I: IntoIterator<Item = Fault>>(faults: I) -> Self {
        let mut found = Faults::default();
        faults.into_iter().for_each(|fault| found.push(fault));
        found
    }
}

/// What is wrong, in numbers.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Kind {
    ReversedRange {
        first: u32,
        last: u32,
    },
    /// `all`, where the number of resources is not known.
    AllOfUnknown,
    NoResources,
    ResourceOutOfRange {
        range: RankRange,
        resources: u32,
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
    /// `lowest` and `expected` differ where bare ranges before may belong to the segment.
    ProcessGap {
        range: RankRange,
        lowest: u32,
        expected: u32,
    },
    AllProcesses {
        resources: u32,
    },
    NotMultiple {
        resources: u32,
        processes: u32,
        processes_span: Span,
        first_process: u32,
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
    /// A chunk that has a resource twice.
    RepeatedResource {
        process: ProcessRank,
        node: NodeRank,
        index: u16,
    },
}

/// A bare range that stands where one could have meant more process ranks: `0-3:0-1,2-3`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ProcessRest {
    /// The segment before, up to its colon.
    pub resources: Span,
    /// The process ranks as they should have been written.
    pub processes: RankRange,
}

/// The text and the resources that faults are about.
pub(crate) struct Context<'a> {
    pub text: &'a str,
    pub pool: Option<&'a Pool>,
}

impl Context<'_> {
    /// The faults in the order of their places, as texts.
    pub fn report(&self, mut faults: Faults) -> Vec<Diagnostic> {
        faults.keep_first();
        let more = faults.count - faults.first.len();
        let mut reported: Vec<_> = faults.first.iter().map(|fault| self.diagnostic(fault)).collect();
        if let Some(last) = reported.last_mut().filter(|_| more > 0) {
            let help = last.help.take().unwrap_or_default();
            last.help =
                Some(format!("{help} ({more} more {} in this placement not shown)", plural(more as u32, "fault")));
        }
        reported
    }

    /// One fault of something that has no text.
    pub fn refuse(&self, kind: Kind) -> Vec<Diagnostic> {
        vec![self.diagnostic(&Fault::unplaced(kind))]
    }

    fn written(&self, span: Span) -> &str {
        self.text.get(span.start as usize..span.end as usize).unwrap_or_default().trim()
    }

    fn noun(&self, count: u32) -> String {
        self.pool.map_or_else(|| plural(count, "resource").into_owned(), |pool| pool.noun(count).into_owned())
    }

    fn diagnostic(&self, fault: &Fault) -> Diagnostic {
        let mut diagnostic = self.describe(fault);
        // A strategy made of lists has no text, so nothing to point at.
        if self.text.is_empty() {
            diagnostic.labels.clear();
        } else if diagnostic.labels.is_empty() {
            diagnostic = diagnostic.label(fault.span.into(), "");
        } else {
            diagnostic.labels[0].span = fault.span.into();
        }
        diagnostic
    }

    /// The texts; a first label gets the fault's own place later.
    fn describe(&self, fault: &Fault) -> Diagnostic {
        match fault.kind {
            Kind::ReversedRange { first, last } => reversed_range(first, last),
            Kind::AllOfUnknown => {
                Diagnostic::new(Code::NoResources, "`all` needs to know the resources, and here none are known")
                    .help("give the number of resources, or write ranks such as 0-7")
            }
            Kind::NoResources => self.no_resources(),
            Kind::ResourceOutOfRange { range, resources } => self.out_of_range(range, resources),
            Kind::DuplicateResource { range, earlier, rest } => {
                let verb = if range.len() == 1 { "is" } else { "are" };
                let message = format!("{} {range} {verb} named twice", plural(range.len(), "resource rank"));
                let help = self.rest_help(range, rest).unwrap_or_else(|| {
                    "name each resource once; processes that share one are written resources:processes, e.g. 0-1:0-3".into()
                });
                let (again, first) = ("again here", "first here");
                Diagnostic::new(Code::DuplicateResource, message)
                    .help(help)
                    .label(0..0, again)
                    .label(earlier.into(), first)
            }
            Kind::ResourceOrder { range, highest, rest } => Diagnostic::new(
                Code::ResourceOrder,
                format!("{} {range} after {highest}; resource ranks must ascend", plural(range.len(), "resource rank")),
            )
            .help(
                self.rest_help(range, rest)
                    .unwrap_or_else(|| "write the segments in ascending order of their resources".into()),
            ),
            Kind::ProcessStart { range } => {
                let message = format!("process ranks start at {}; they must start at 0", range.first());
                Diagnostic::new(Code::ProcessStart, message).help(format!("write {} here", counted(0, range.len())))
            }
            Kind::ProcessGap { range, lowest, expected } => self.process_gap(range, lowest, expected),
            Kind::AllProcesses { resources } => {
                Diagnostic::new(Code::AllProcesses, "`all` cannot stand for process ranks").help(match resources {
                    0 => "write a range of process ranks, or leave `:all` out for one process a resource".into(),
                    n => format!(
                        "leave `:all` out for one process a resource, or write a range such as {}",
                        counted(0, n)
                    ),
                })
            }
            Kind::NotMultiple { resources, processes, processes_span, first_process } => {
                self.not_multiple(fault.span, resources, processes, processes_span, first_process)
            }
            Kind::TooManyProcesses { processes } => too_many_processes(processes).label(0..0, "counted up to here"),
            Kind::SpansNodes { process, from, to, per_process } => self.spans_nodes(process, from, to, per_process),
            Kind::MixedHardware { process, first, second } => {
                let name = |kind| self.pool.map_or("", |pool| pool.kind_name(kind));
                let message =
                    format!("process {process} would need two kinds of hardware: {} and {}", name(first), name(second));
                Diagnostic::new(Code::MixedHardware, message)
                    .help("give each kind of hardware its own segment, or its own component")
            }
            Kind::RepeatedResource { process, node, index } => {
                let message = format!("process {process} is given resource {index} of node {node} twice");
                Diagnostic::new(Code::DuplicateResource, message).help("name each resource of a process once")
            }
        }
    }

    fn no_resources(&self) -> Diagnostic {
        let Some(pool) = self.pool else {
            return Diagnostic::new(Code::NoResources, "there are no resources to place processes on")
                .help("give the number of resources there are, one or more");
        };
        Diagnostic::new(Code::NoResources, format!("{} no {} to place processes on", pool.has(), pool.noun(2)))
            .help("select another node group, or place by node with `node_group: node`")
    }

    fn out_of_range(&self, range: RankRange, resources: u32) -> Diagnostic {
        let has = format!("{resources} {}", self.noun(resources));
        let ranks = counted(0, resources);
        let holder = self.pool.map_or_else(|| "there are".into(), Pool::has);
        let verb = if range.len() == 1 { "is" } else { "are" };
        let named = format!("{} {range} {verb} out of range", plural(range.len(), "resource rank"));
        let last = resources.saturating_sub(1);
        let help = match RankRange::new(range.first(), last) {
            Some(kept) => format!("write {kept}, or add {}", self.noun(2)),
            None => format!("use ranks up to {last}"),
        };
        let rank = plural(resources, "rank");
        Diagnostic::new(Code::ResourceOutOfRange, format!("{named}: {holder} {has}, {rank} {ranks}")).help(help)
    }

    fn rest_help(&self, range: RankRange, rest: Option<ProcessRest>) -> Option<String> {
        let ProcessRest { resources, processes } = rest?;
        let resources = self.written(resources);
        Some(format!("process ranks are one range: if {range} are process ranks too, write {resources}:{processes}"))
    }

    fn process_gap(&self, range: RankRange, lowest: u32, expected: u32) -> Diagnostic {
        let here = counted(expected, range.len());
        let one = range.len() == 1;
        let named = format!("process {} {range}", plural(range.len(), "rank"));
        if lowest != expected {
            let verb = if one { "fits" } else { "fit" };
            return Diagnostic::new(
                Code::ProcessGap,
                format!("{named} {verb} no reading of the ranges before the colon"),
            )
            .help(format!(
                "write {here} for the last range alone, or start at {lowest} to share them among all these ranges"
            ));
        }
        let how = match (range.first() < expected, one) {
            (true, true) => "is named twice",
            (true, false) => "were named before, or some of them",
            (false, true) => "leaves a gap",
            (false, false) => "leave a gap",
        };
        Diagnostic::new(Code::ProcessGap, format!("{named} {how}: the next process rank is {expected}"))
            .help(format!("write {here} here"))
    }

    fn not_multiple(
        &self,
        resources_span: Span,
        resources: u32,
        processes: u32,
        processes_span: Span,
        first_process: u32,
    ) -> Diagnostic {
        let (below, above) = nearest_fits(resources, processes);
        let shared = if processes > resources { "shared evenly by" } else { "given equal parts of" };
        let these = format!("{processes} {}", if processes == 1 { "process" } else { "processes" });
        let message = format!("{these} cannot be {shared} {}", count(resources, "resource"));
        let several = either([below, above].into_iter().flatten().map(u64::from));
        // Past the first segment an example would name process ranks that the cure of an earlier fault moves.
        let example = match below.or(above) {
            Some(processes) if first_process == 0 => {
                format!(", e.g. {}:{}", self.written(resources_span), counted(0, processes))
            }
            _ => String::new(),
        };
        let help = format!("use {several} processes here{example}");
        Diagnostic::new(Code::NotMultiple, message)
            .help(help)
            .label(resources_span.into(), count(resources, "resource"))
            .label(processes_span.into(), these)
    }

    fn spans_nodes(&self, process: ProcessRank, from: NodeRank, to: NodeRank, per_process: u32) -> Diagnostic {
        let noun = self.noun(per_process);
        if self.pool.is_some_and(Pool::by_node) {
            return Diagnostic::new(
                Code::SpansNodes,
                format!(
                    "process {process} would run on {per_process} nodes ({from} to {to}); a process runs on one node"
                ),
            )
            .help("give at least as many processes as nodes, e.g. 0-1:0-1");
        }
        Diagnostic::new(
            Code::SpansNodes,
            format!(
                "process {process} would need {per_process} {noun} on nodes {from} and {to}; a process runs on one node"
            ),
        )
        .help(format!("choose ranks so that each block of {per_process} lies on one node, or give each process fewer"))
    }
}

/// These numbers, but for 0, as a choice: `200 or 202`.
pub(crate) fn either(numbers: impl IntoIterator<Item = u64>) -> String {
    numbers.into_iter().filter(|&n| n > 0).map(|n| n.to_string()).collect::<Vec<_>>().join(" or ")
}

/// A number with commas between thousands.
fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// `count` ranks from `first` on, as text.
fn counted(first: u32, count: u32) -> String {
    RankRange::counted(first, count).map_or_else(|| first.to_string(), |range| range.to_string())
}

/// The numbers of processes nearest to `processes`, below and above, that fit this many resources.
fn nearest_fits(resources: u32, processes: u32) -> (Option<u32>, Option<u32>) {
    if processes > resources {
        let below = processes / resources * resources;
        return (Some(below), below.checked_add(resources));
    }
    let root = resources.isqrt();
    let divisors = (1..=root).filter(|&n| resources.is_multiple_of(n)).flat_map(|n| [n, resources / n]);
    divisors.fold((None, None), |(below, above), n| {
        if n < processes {
            (below.max(Some(n)), above)
        } else {
            (below, Some(above.map_or(n, |best: u32| best.min(n))))
        }
    })
}

/// The fault of a component with more processes than one can have.
pub(crate) fn too_many_processes(processes: u64) -> Diagnostic {
    let (found, most) = (grouped(processes), grouped(MAX_PROCESSES.into()));
    Diagnostic::new(Code::TooManyProcesses, format!("the component has {found} processes; at most {most} can be"))
        .help("split the component, or place fewer processes")
}

/// The fault of a number past the largest rank.
pub(crate) fn too_large(rank: u32) -> Diagnostic {
    Diagnostic::new(Code::InvalidValue, format!("{rank} is too large for a rank"))
        .help(format!("ranks go up to {MAX_RANK}"))
}

/// The fault of a list of ranks that names one twice.
pub(crate) fn twice(rank: ResourceRank) -> Diagnostic {
    Diagnostic::new(Code::DuplicateResource, format!("resource rank {rank} is named twice in one process"))
        .help("name each resource of a process once")
}
