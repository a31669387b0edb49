//! Faults to texts: the value found, the values allowed, and how to fix it.

use crate::diagnostic::{Code, Diagnostic};
use crate::fault::{Fault, Faults, Kind, ProcessRest};
use crate::ids::{MAX_PROCESSES, MAX_RANK, NodeRank, ProcessRank, ResourceRank};
use crate::pool::Pool;
use crate::rank_set::{RankRange, RankSet};
use crate::syntax::{Span, reversed_range};
use crate::words::{count, either, grouped, plural, ranks};

/// The text and the resources that faults refer to.
pub(crate) struct Context<'a> {
    pub text: &'a str,
    pub pool: Option<&'a Pool>,
}

impl Context<'_> {
    /// The texts of the faults, in the order of their places.
    pub fn report(&self, mut faults: Faults) -> Vec<Diagnostic> {
        let mut reported: Vec<_> = faults.first().iter().map(|fault| self.diagnostic(fault)).collect();
        let omitted = faults.omitted();
        if let Some(last) = reported.last_mut().filter(|_| omitted > 0) {
            let help = last.help.take().unwrap_or_default();
            let more = plural(omitted as u32, "fault");
            last.help = Some(format!("{help} ({omitted} more {more} in this placement not shown)"));
        }
        reported
    }

    /// One fault of a rule without text.
    pub fn refuse(&self, kind: Kind) -> Vec<Diagnostic> {
        vec![self.diagnostic(&Fault::unplaced(kind))]
    }

    fn written(&self, span: Span) -> &str {
        self.text.get(span.start as usize..span.end as usize).unwrap_or_default().trim()
    }

    fn noun(&self, count: u32) -> String {
        self.pool.map_or_else(|| plural(count, "resource"), |pool| pool.noun(count)).into_owned()
    }

    fn diagnostic(&self, fault: &Fault) -> Diagnostic {
        let mut diagnostic = self.describe(fault);
        if self.text.is_empty() {
            diagnostic.labels.clear();
        } else if diagnostic.labels.is_empty() {
            diagnostic = diagnostic.label(fault.span.into(), "");
        } else {
            diagnostic.labels[0].span = fault.span.into();
        }
        diagnostic
    }

    /// The text of a fault. The span of the first label is set later.
    fn describe(&self, fault: &Fault) -> Diagnostic {
        match fault.kind {
            Kind::ReversedRange { first, last } => reversed_range(first, last),
            Kind::AllOfUnknown => {
                Diagnostic::new(Code::NoResources, "`all` needs the number of resources, which is unknown here")
                    .help("pass the number of resources, or write ranks such as 0-7")
            }
            Kind::NoResources => self.no_resources(),
            Kind::ResourceOutOfRange { range, resources } => self.out_of_range(range, resources),
            Kind::ExcludedResource { range } => self.excluded(range),
            Kind::DuplicateResource { range, earlier, rest } => {
                let verb = if range.len() == 1 { "is" } else { "are" };
                let message = format!("{} {range} {verb} named twice", plural(range.len(), "resource rank"));
                let share = "name each resource once; to share resources, write resources:processes, e.g. 0-1:0-3";
                Diagnostic::new(Code::DuplicateResource, message)
                    .help(self.rest_help(range, rest).unwrap_or_else(|| share.into()))
                    .label(0..0, "again here")
                    .label(earlier.into(), "first here")
            }
            Kind::ResourceOrder { range, highest, rest } => {
                let verb = if range.len() == 1 { "follows" } else { "follow" };
                let message = format!("{} {range} {verb} {highest}", plural(range.len(), "resource rank"));
                Diagnostic::new(Code::ResourceOrder, format!("{message}; resource ranks must ascend"))
                    .help(self.rest_help(range, rest).unwrap_or_else(|| "sort the segments by resource rank".into()))
            }
            Kind::ProcessStart { range } => {
                let message = format!("process ranks start at {}; they must start at 0", range.first());
                Diagnostic::new(Code::ProcessStart, message).help(format!("write {} here", ranks(0, range.len())))
            }
            Kind::ProcessGap { range, lowest, expected } => self.process_gap(range, lowest, expected),
            Kind::AllProcesses { resources } => {
                Diagnostic::new(Code::AllProcesses, "`all` is not allowed for process ranks").help(match resources {
                    0 => "omit `:all` for one process per resource, or write a range".into(),
                    n => format!("omit `:all` for one process per resource, or write a range such as {}", ranks(0, n)),
                })
            }
            Kind::NotMultiple { resources, processes, processes_span, example } => {
                self.not_multiple(fault.span, resources, processes, processes_span, example)
            }
            Kind::TooManyProcesses { processes } => too_many_processes(processes).label(0..0, "total up to here"),
            Kind::SpansNodes { process, from, to, per_process } => self.spans_nodes(process, from, to, per_process),
            Kind::MixedHardware { process, first, second } => {
                let name = |kind| self.pool.map_or("", |pool| pool.kind_name(kind));
                let message =
                    format!("process {process} would need two hardware types: {} and {}", name(first), name(second));
                Diagnostic::new(Code::MixedHardware, message)
                    .help("give each hardware type its own segment or component")
            }
            Kind::RepeatedResource { process, node, index } => {
                let message = format!("process {process} uses resource {index} of node {node} twice");
                Diagnostic::new(Code::DuplicateResource, message).help("name each resource of a process once")
            }
        }
    }

    fn no_resources(&self) -> Diagnostic {
        let (message, help) = match self.pool {
            None => ("no resources to place processes on".into(), "pass a number of resources of 1 or more"),
            Some(pool) if !pool.excluded().is_empty() => {
                (format!("{} only excluded {}", pool.has(), pool.noun(2)), "select another node group, or exclude less")
            }
            Some(pool) => (
                format!("{} no {} to place processes on", pool.has(), pool.noun(2)),
                "select another node group, or place by node with `node_group: node`",
            ),
        };
        Diagnostic::new(Code::NoResources, message).help(help)
    }

    fn out_of_range(&self, range: RankRange, resources: u32) -> Diagnostic {
        let verb = if range.len() == 1 { "is" } else { "are" };
        let named = format!("{} {range} {verb} out of range", plural(range.len(), "resource rank"));
        let holder = self.pool.map_or_else(|| if resources == 1 { "there is" } else { "there are" }.into(), Pool::has);
        let has = format!("{resources} {}, {}", self.noun(resources), plural(resources, "rank"));
        let last = resources.saturating_sub(1);
        let help = match RankRange::new(range.first(), last) {
            Some(kept) => format!("write {kept}, or add {}", self.noun(2)),
            None => format!("use ranks up to {last}"),
        };
        Diagnostic::new(Code::ResourceOutOfRange, format!("{named}: {holder} {has} {}", ranks(0, resources))).help(help)
    }

    fn excluded(&self, range: RankRange) -> Diagnostic {
        let all = RankSet::from_ranges([range]);
        let excluded = self.pool.map_or_else(|| all.clone(), |pool| pool.excluded_in(range));
        let verb = if excluded.len() == 1 { "is" } else { "are" };
        let mut names = self.pool.map_or_else(Vec::new, |pool| pool.excluded_names(&excluded));
        if names.len() > MOST_EXCLUDED {
            let more = names.split_off(MOST_EXCLUDED).len();
            names.push(format!("and {more} more"));
        }
        let named =
            format!("{} {excluded} {verb} excluded: {}", plural(excluded.len(), "resource rank"), names.join(", "));
        let rest = all.difference(&excluded);
        let help = match rest.is_empty() {
            true => format!("omit {range}, or use other ranks"),
            false => format!("omit {excluded}: write {rest}"),
        };
        Diagnostic::new(Code::ExcludedResource, named).help(help)
    }

    fn rest_help(&self, range: RankRange, rest: Option<ProcessRest>) -> Option<String> {
        let ProcessRest { resources, processes } = rest?;
        let resources = self.written(resources);
        Some(format!("process ranks are one range: if {range} are process ranks too, write {resources}:{processes}"))
    }

    fn process_gap(&self, range: RankRange, lowest: u32, expected: u32) -> Diagnostic {
        let here = ranks(expected, range.len());
        let one = range.len() == 1;
        let named = format!("process {} {range}", plural(range.len(), "rank"));
        let (message, help) = if lowest != expected {
            let verb = if one { "matches" } else { "match" };
            (
                format!("{named} {verb} no reading of the ranges before the colon"),
                format!(
                    "write {here} for the last range alone, or start at {lowest} to share them among all these ranges"
                ),
            )
        } else {
            let how = match (range.first() < expected, one) {
                (true, true) => "is named twice",
                (true, false) => "overlap earlier ones",
                (false, true) => "leaves a gap",
                (false, false) => "leave a gap",
            };
            (format!("{named} {how}: the next process rank is {expected}"), format!("write {here} here"))
        };
        Diagnostic::new(Code::ProcessGap, message).help(help)
    }

    fn not_multiple(
        &self,
        resources_span: Span,
        resources: u32,
        processes: u32,
        processes_span: Span,
        example: bool,
    ) -> Diagnostic {
        let (below, above) = nearest_fits(resources, processes);
        let (these, those) = (count(processes, "process"), count(resources, "resource"));
        let message = if processes > resources {
            format!("{these} cannot be shared evenly by {those}")
        } else {
            format!("{those} cannot be divided evenly among {these}")
        };
        let fits = either([below, above].into_iter().flatten().map(u64::from));
        let noun = plural(above.or(below).unwrap_or(0), "process");
        let example = match below.or(above) {
            Some(processes) if example => {
                format!(", e.g. {}:{}", self.written(resources_span), ranks(0, processes))
            }
            _ => String::new(),
        };
        Diagnostic::new(Code::NotMultiple, message)
            .help(format!("use {fits} {noun} here{example}"))
            .label(resources_span.into(), those)
            .label(processes_span.into(), these)
    }

    fn spans_nodes(&self, process: ProcessRank, from: NodeRank, to: NodeRank, per_process: u32) -> Diagnostic {
        let by_node = self.pool.is_some_and(Pool::by_node);
        let (needs, help) = if by_node {
            (
                format!("run on {per_process} nodes ({from} to {to})"),
                "use at least as many processes as nodes, e.g. 0-1:0-1".into(),
            )
        } else {
            let noun = self.noun(per_process);
            let most = self.pool.map_or(u32::MAX, Pool::most_on_a_node);
            let help = if per_process > most {
                format!("use more processes: no node has more than {most} {}", self.noun(most))
            } else {
                format!(
                    "choose ranks so that each block of {per_process} is on one node, or give each process fewer {noun}"
                )
            };
            (format!("need {per_process} {noun} on nodes {from} and {to}"), help)
        };
        let message = format!("process {process} would {needs}; a process runs on one node");
        Diagnostic::new(Code::SpansNodes, message).help(help)
    }
}

/// Excluded resources that a message names one by one.
const MOST_EXCLUDED: usize = 4;

/// The largest fitting number of processes below `processes`, and the smallest above it.
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

/// The fault of a component with too many processes.
pub(crate) fn too_many_processes(processes: u64) -> Diagnostic {
    let (found, most) = (grouped(processes), grouped(MAX_PROCESSES.into()));
    Diagnostic::new(Code::TooManyProcesses, format!("the component has {found} processes; the limit is {most}"))
        .help("split the component, or place fewer processes")
}

/// The fault of a number above the largest rank.
pub(crate) fn too_large(rank: u32) -> Diagnostic {
    Diagnostic::new(Code::InvalidValue, format!("{rank} is too large for a rank"))
        .help(format!("the largest rank is {MAX_RANK}"))
}

/// The fault of a list that names a rank twice.
pub(crate) fn twice(rank: ResourceRank) -> Diagnostic {
    Diagnostic::new(Code::DuplicateResource, format!("resource rank {rank} is named twice in one process"))
        .help("name each resource of a process once")
}
