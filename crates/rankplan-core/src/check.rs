//! Text to a rank map: which ranges belong to a segment, and every rule that needs no nodes.

use crate::diagnostic::Diagnostic;
use crate::fault::{Fault, Faults, Kind, ProcessRest};
use crate::ids::MAX_PROCESSES;
use crate::messages::Context;
use crate::rank_map::{RankMap, fits};
use crate::rank_set::{RankRange, RankSet};
use crate::syntax::{Parts, Ranks, Span, Written, parse};

impl RankMap {
    /// Read and check a placement. Without the number of resources, bounds are not checked and `all` is rejected.
    ///
    /// # Errors
    /// Every fault of the text, in order.
    pub fn parse(text: &str, resources: Option<u32>) -> Result<Self, Vec<Diagnostic>> {
        let mut faults = Faults::default();
        let map = check(text, resources, &RankSet::default(), &mut faults).map_err(|fault| vec![fault])?;
        if faults.is_empty() { Ok(map) } else { Err(Context { text, pool: None }.report(faults)) }
    }

    /// Read what a map prints: the inverse of [`Display`](std::fmt::Display). Unlike in a placement, segments may name the same
    /// resources, as those of [`RankMap::from_lists`] do.
    ///
    /// # Errors
    /// Every fault of the text, in order.
    pub fn read(text: &str) -> Result<Self, Vec<Diagnostic>> {
        let mut faults = Faults::default();
        let none = RankSet::default();
        let mut checker = Checker::new(text, None, &none, &mut faults);
        checker.disjoint = false;
        checker.read(text).map_err(|fault| vec![fault])?;
        let map = checker.map;
        if faults.is_empty() { Ok(map) } else { Err(Context { text, pool: None }.report(faults)) }
    }
}

/// Read a placement, join its parts to segments, and check them. `all` leaves out the excluded resource ranks, and naming one
/// is a fault.
///
/// If some segments have faults, the map holds at least those of the others that could span nodes, for the faults that depend
/// on nodes.
///
/// # Errors
/// `syntax` or `empty-placement`, which end the check.
pub(crate) fn check(
    text: &str,
    resources: Option<u32>,
    excluded: &RankSet,
    faults: &mut Faults,
) -> Result<RankMap, Diagnostic> {
    if resources.is_some_and(|count| count <= excluded.len()) {
        let parts = parse(text)?;
        let span = parts[0].resources.span.to(parts[parts.len() - 1].resources.span);
        faults.push(Fault { kind: Kind::NoResources, span });
        return Ok(RankMap::default());
    }
    let mut checker = Checker::new(text, resources, excluded, faults);
    checker.read(text)?;
    let Checker { map, ascends, .. } = checker;
    if !ascends {
        find_duplicates(text, resources, faults);
    }
    Ok(if faults.is_empty() { map.read_from(text) } else { map })
}

/// The resources of a part, as written. As small as possible: a text can have a million of them.
#[derive(Clone, Copy)]
struct Named {
    /// [`UNKNOWN`] for `all` of an unknown number of resources.
    first: u32,
    last: u32,
    span: Span,
}

/// Larger than any rank.
const UNKNOWN: u32 = u32::MAX;

impl Named {
    fn new(written: Written, resources: Option<u32>) -> Self {
        let (first, last) = match (written.ranks, resources) {
            (Ranks::Range { first, last }, _) => (first, last),
            (Ranks::All, Some(resources)) => (0, resources - 1),
            (Ranks::All, None) => (UNKNOWN, UNKNOWN),
        };
        Named { first, last, span: written.span }
    }

    /// The range; `None` for a reversed range, and for `all` of an unknown number of resources.
    fn range(self) -> Option<RankRange> {
        RankRange::new(self.first, self.last)
    }

    /// The number of resources, if known.
    fn size(self) -> Option<u32> {
        self.range().map(RankRange::len)
    }
}

/// The processes of a segment: the rank of the first, their number, and the place that states or implies them.
#[derive(Clone, Copy)]
struct Processes {
    first: u64,
    count: u32,
    span: Span,
}

struct Checker<'a> {
    resources: Option<u32>,
    excluded: &'a RankSet,
    faults: &'a mut Faults,
    map: RankMap,
    /// The latest parts without process ranks: segments of their own, or ranges of the next segment with process ranks.
    bare: Vec<Named>,
    /// The next process rank; unknown after a reversed range.
    next: Option<u64>,
    /// Whether no segment was read yet.
    first: bool,
    /// The number of processes.
    total: u64,
    /// The highest resource rank.
    highest: Option<u32>,
    /// Whether all resource ranks ascend.
    ascends: bool,
    /// Whether they must ascend from segment to segment, so that no two name the same resource.
    disjoint: bool,
    /// The resources and the process ranks of the segment before, if it has process ranks.
    before: Option<(Span, RankRange)>,
}

impl<'a> Checker<'a> {
    fn new(text: &str, resources: Option<u32>, excluded: &'a RankSet, faults: &'a mut Faults) -> Self {
        Checker {
            resources,
            excluded,
            faults,
            map: RankMap::default(),
            // Room for all parts of most texts: growing step by step would touch up to twice the memory.
            bare: Vec::with_capacity((text.len() / 2 + 1).min(1 << 20)),
            next: Some(0),
            first: true,
            total: 0,
            highest: None,
            ascends: true,
            disjoint: true,
            before: None,
        }
    }

    /// Read all parts of a text.
    fn read(&mut self, text: &str) -> Result<(), Diagnostic> {
        for part in Parts::new(text)? {
            let part = part?;
            self.name(part.resources);
            if let Some(processes) = part.processes {
                self.run(processes);
            }
        }
        let bare = std::mem::take(&mut self.bare);
        self.map.reserve(bare.len());
        for resources in bare {
            self.implicit(resources);
        }
        Ok(())
    }

    fn fault(&mut self, kind: Kind, span: Span) {
        self.faults.push(Fault { kind, span });
    }

    /// Add the resources of a part to the bare ones.
    fn name(&mut self, written: Written) {
        let named = Named::new(written, self.resources);
        if let (Ranks::All, Some(resources), false) = (written.ranks, self.resources, self.excluded.is_empty()) {
            let left = RankSet::first_ranks(resources).difference(self.excluded);
            let parts = left.ranges().iter().map(|part| Named { first: part.first(), last: part.last(), ..named });
            self.bare.extend(parts);
        } else {
            self.bare.push(named);
        }
    }

    /// Join the bare parts, of which the last one has these process ranks. The ones that fill the gap up to `processes` are
    /// segments of their own, and the others share `processes`. Sizes are positive, so at most one split fits.
    fn run(&mut self, processes: Written) {
        let mut parts = std::mem::take(&mut self.bare);
        let alone = parts.len() - 1;
        let range = self.process_range(processes, parts[alone]);
        let split = range.map_or(alone, |range| self.split(&parts, range, processes.span));
        for &part in &parts[..split] {
            self.implicit(part);
        }
        let counted =
            |range: RankRange| Processes { first: range.first().into(), count: range.len(), span: processes.span };
        self.segment(&parts[split..], range.map(counted), true);
        self.before = range.map(|range| (parts[split].span.to(parts[alone].span), range)).or(self.before);
        self.next = range.map(|range| u64::from(range.last()) + 1);
        parts.clear();
        self.bare = parts;
    }

    /// The index of the first part that shares these process ranks; the last part alone if no split fits.
    fn split(&mut self, parts: &[Named], range: RankRange, span: Span) -> usize {
        let alone = parts.len() - 1;
        let mut next = self.next;
        for (index, &part) in parts.iter().enumerate() {
            if next == Some(range.first().into()) {
                return index;
            }
            if index < alone {
                next = next.and_then(|rank| Some(rank + u64::from(part.size()?)));
            }
        }
        // With an unknown next rank, any process ranks may be right.
        if let (Some(lowest), Some(expected)) = (self.next, next) {
            let rank = |rank: u64| u32::try_from(rank).unwrap_or(u32::MAX);
            let kind = if self.first && alone == 0 {
                Kind::ProcessStart { range }
            } else {
                Kind::ProcessGap { range, lowest: rank(lowest), expected: rank(expected) }
            };
            self.fault(kind, span);
        }
        alone
    }

    fn process_range(&mut self, processes: Written, resources: Named) -> Option<RankRange> {
        match processes.ranks {
            Ranks::Range { first, last } => {
                let range = RankRange::new(first, last);
                if range.is_none() {
                    self.fault(Kind::ReversedRange { first, last }, processes.span);
                }
                range
            }
            Ranks::All => {
                let resources = resources.size().unwrap_or(0);
                self.fault(Kind::AllProcesses { resources }, processes.span);
                None
            }
        }
    }

    /// A part without process ranks: one process per resource, continuing from the segment before.
    fn implicit(&mut self, resources: Named) {
        let size = resources.size();
        let counted = self.next.zip(size).map(|(first, count)| Processes { first, count, span: resources.span });
        self.segment(&[resources], counted, false);
        self.before = None;
        self.next = self.next.zip(size).map(|(next, size)| next + u64::from(size));
    }

    /// Check a segment; `explicit` if its last part has process ranks.
    fn segment(&mut self, parts: &[Named], processes: Option<Processes>, explicit: bool) {
        let span = parts[0].span.to(parts[parts.len() - 1].span);
        self.highest = self.highest.filter(|_| self.disjoint);
        let mut size = Some(0_u64);
        let mut kept = 0_u64;
        let mut inside = true;
        for (index, &part) in parts.iter().enumerate() {
            let range = part.range();
            size = size.zip(range).map(|(size, range)| size + u64::from(range.len()));
            let bare = !explicit || index + 1 < parts.len();
            match range {
                Some(range) => {
                    inside &= self.bounds_and_order(range, part.span, bare);
                    kept += self.within_bounds(range);
                }
                None if part.first == UNKNOWN => self.fault(Kind::AllOfUnknown, part.span),
                None => self.fault(Kind::ReversedRange { first: part.first, last: part.last }, part.span),
            }
        }
        self.first = false;
        let Some(Processes { first, count, span: processes_span }) = processes else { return };
        let fitted = self.total <= u64::from(MAX_PROCESSES);
        // Resources out of range have no processes, however many are written.
        if inside {
            self.total += u64::from(count);
        }
        let fit = self.total <= u64::from(MAX_PROCESSES);
        if fitted && !fit {
            self.fault(Kind::TooManyProcesses { processes: self.total }, processes_span);
            self.map = RankMap::default();
        }
        // The size exceeds 32 bits only if the segment names a resource twice.
        let Some(resources) = size.and_then(|size| u32::try_from(size).ok()) else { return };
        let first_process = u32::try_from(first).unwrap_or(u32::MAX);
        if !fits(resources, count) {
            // Of ranges that are out of bounds, only the part that stays after the fix of that fault must fit.
            let resources = if inside { resources } else { kept as u32 };
            if !fits(resources, count) {
                let example = inside && first_process == 0;
                self.fault(Kind::NotMultiple { resources, processes: count, processes_span, example }, span);
            }
        } else if inside && fit && (resources > count || self.faults.is_empty()) {
            self.map.push(parts.iter().filter_map(|part| part.range()), first_process, count, span);
        }
    }

    /// How many resources of a range exist.
    fn within_bounds(&self, range: RankRange) -> u64 {
        let last = self.resources.map_or(range.last(), |resources| range.last().min(resources.saturating_sub(1)));
        RankRange::new(range.first(), last).map_or(0, |range| range.len().into())
    }

    /// Whether the range is within bounds. A range that does not ascend can still be assigned.
    fn bounds_and_order(&mut self, range: RankRange, span: Span, bare: bool) -> bool {
        let inside = self.resources.is_none_or(|resources| range.last() < resources);
        if let (false, Some(resources)) = (inside, self.resources) {
            self.fault(Kind::ResourceOutOfRange { range, resources }, span);
        }
        if !self.excluded.is_empty() && !RankSet::from_ranges([range]).intersection(self.excluded).is_empty() {
            self.fault(Kind::ExcludedResource { range }, span);
        }
        if let Some(highest) = self.highest.filter(|&highest| highest >= range.first()) {
            let rest = self.process_rest(range).filter(|_| bare);
            self.fault(Kind::ResourceOrder { range, highest, rest }, span);
            self.ascends = false;
        }
        self.highest = self.highest.max(Some(range.last()));
        inside
    }

    /// The process ranks of the segment before, continued by this bare range, if it may have been meant so.
    fn process_rest(&self, range: RankRange) -> Option<ProcessRest> {
        let (resources, before) = self.before?;
        let processes = RankRange::new(before.first(), range.last())?;
        (range.first() == before.last() + 1).then_some(ProcessRest { resources, processes })
    }
}

/// Find which ranges that do not ascend name resources of an earlier part. Reads the text once more, and remembers only the
/// faults to report.
fn find_duplicates(text: &str, resources: Option<u32>, faults: &mut Faults) {
    let mut open: Vec<&mut Fault> =
        faults.first().iter_mut().filter(|fault| matches!(fault.kind, Kind::ResourceOrder { .. })).collect();
    for part in Parts::new(text).into_iter().flatten().flatten() {
        let part = Named::new(part.resources, resources);
        let Some(earlier) = part.range() else { continue };
        open.retain_mut(|fault| {
            let Kind::ResourceOrder { range, rest, .. } = fault.kind else { return false };
            let both = RankRange::new(range.first().max(earlier.first()), range.last().min(earlier.last()));
            if let Some(both) = both.filter(|_| part.span < fault.span) {
                fault.kind = Kind::DuplicateResource { range: both, earlier: part.span, rest };
            }
            both.is_none() && part.span < fault.span
        });
        if open.is_empty() {
            return;
        }
    }
}
