//! Parts to a rank map: which ranges belong to a segment, and every rule that needs no nodes.

use std::collections::BTreeMap;

use crate::fault::{Fault, Faults, Kind, ProcessRest};
use crate::ids::MAX_PROCESSES;
use crate::rank_map::{RankMap, fits};
use crate::rank_set::RankRange;
use crate::syntax::{Part, Ranks, Span, Written};

/// Join parts to segments and check them. The map holds the segments that can be assigned, even when others have faults.
pub(crate) fn check(parts: &[Part], resources: Option<u32>, faults: &mut Faults) -> RankMap {
    if resources == Some(0) {
        faults.push(Fault {
            kind: Kind::NoResources,
            span: parts[0].resources.span.to(parts[parts.len() - 1].resources.span),
        });
        return RankMap::default();
    }
    let mut checker = Checker {
        resources,
        faults,
        map: RankMap::default(),
        next: Some(0),
        written: 0,
        total: 0,
        named: Named::default(),
    };
    let mut run = 0;
    for (index, part) in parts.iter().enumerate() {
        if let Some(processes) = part.processes {
            checker.run(&parts[run..=index], processes);
            run = index + 1;
        }
    }
    for part in &parts[run..] {
        checker.implicit(part.resources);
    }
    checker.map
}

/// The processes of a segment: the rank of the first, how many, and where they (or what they follow from) are written.
#[derive(Clone, Copy)]
struct Processes {
    first: u64,
    count: u32,
    span: Span,
}

struct Checker<'a> {
    resources: Option<u32>,
    faults: &'a mut Faults,
    map: RankMap,
    /// The process rank that comes next; not known after a range that runs backwards.
    next: Option<u64>,
    /// How many segments there were.
    written: usize,
    /// How many processes there were.
    total: u64,
    named: Named,
}

impl Checker<'_> {
    fn fault(&mut self, kind: Kind, span: Span) {
        self.faults.push(Fault { kind, span });
    }

    /// How many resources a part names; `None` when that cannot be said.
    fn size(&self, written: Written) -> Option<u32> {
        self.range(written).map(RankRange::len)
    }

    fn range(&self, written: Written) -> Option<RankRange> {
        range_of(written, self.resources)
    }

    /// Bare parts and, last, one with process ranks: those that fill the gap up to `processes` are segments of their own, the
    /// others share `processes`. Sizes are positive, so at most one split fits.
    fn run(&mut self, parts: &[Part], processes: Written) {
        let alone = parts.len() - 1;
        let Some(range) = self.process_range(processes, parts[alone].resources) else {
            for part in &parts[..alone] {
                self.implicit(part.resources);
            }
            self.segment(&parts[alone..], None);
            self.next = None;
            return;
        };
        let mut next = self.next;
        let mut split = None;
        for (index, part) in parts.iter().enumerate() {
            if next == Some(u64::from(range.first())) {
                split = Some(index);
                break;
            }
            if index < alone {
                next = next.and_then(|rank| Some(rank + u64::from(self.size(part.resources)?)));
            }
        }
        // Where the count is lost, nothing can be said against these ranks.
        if let (None, Some(lowest), Some(expected)) = (split, self.next, next) {
            let rank = |rank: u64| u32::try_from(rank).unwrap_or(u32::MAX);
            let kind = if self.written == 0 && alone == 0 {
                Kind::ProcessStart { range }
            } else {
                Kind::ProcessGap { range, lowest: rank(lowest), expected: rank(expected) }
            };
            self.fault(kind, processes.span);
        }
        let split = split.unwrap_or(alone);
        for part in &parts[..split] {
            self.implicit(part.resources);
        }
        let counted = Processes { first: u64::from(range.first()), count: range.len(), span: processes.span };
        self.segment(&parts[split..], Some(counted));
        self.named.rest = Some((parts[split].resources.span.to(parts[alone].resources.span), range));
        self.next = Some(u64::from(range.last()) + 1);
    }

    fn process_range(&mut self, processes: Written, resources: Written) -> Option<RankRange> {
        match processes.ranks {
            Ranks::Range { first, last } => {
                let range = RankRange::new(first, last);
                if range.is_none() {
                    self.fault(Kind::ReversedRange { first, last }, processes.span);
                }
                range
            }
            Ranks::All => {
                let resources = self.size(resources).unwrap_or(0);
                self.fault(Kind::AllProcesses { resources }, processes.span);
                None
            }
        }
    }

    /// A part without process ranks: one process a resource, counted on.
    fn implicit(&mut self, resources: Written) {
        let size = self.size(resources);
        let counted = self.next.zip(size).map(|(first, count)| Processes { first, count, span: resources.span });
        self.segment(&[Part { resources, processes: None }], counted);
        self.named.rest = None;
        self.next = self.next.zip(size).map(|(next, size)| next + u64::from(size));
    }

    fn segment(&mut self, parts: &[Part], processes: Option<Processes>) {
        let span = parts[0].resources.span.to(parts[parts.len() - 1].resources.span);
        let mut size = Some(0_u64);
        let mut inside = true;
        for part in parts {
            let written = part.resources;
            let range = self.range(written);
            size = size.zip(range).map(|(size, range)| size + u64::from(range.len()));
            match (range, written.ranks) {
                (Some(range), _) => inside &= self.bounds_and_order(range, part),
                (None, Ranks::Range { first, last }) => self.fault(Kind::ReversedRange { first, last }, written.span),
                (None, Ranks::All) => self.fault(Kind::AllOfUnknown, written.span),
            }
        }
        self.written += 1;
        let Some(Processes { first, count, span: processes_span }) = processes else { return };
        let fitted = self.total <= u64::from(MAX_PROCESSES);
        // Resources that are not there cannot take processes, however many were written.
        if inside {
            self.total += u64::from(count);
        }
        let fit = self.total <= u64::from(MAX_PROCESSES);
        if fitted && !fit {
            self.fault(Kind::TooManyProcesses { processes: self.total }, processes_span);
            self.map = RankMap::default();
        }
        // Sizes add up past 32 bits only where a resource is named twice.
        let Some(resources) = size.and_then(|size| u32::try_from(size).ok()) else { return };
        if !fits(resources, count) {
            let first_process = u32::try_from(first).unwrap_or(0);
            self.fault(Kind::NotMultiple { resources, processes: count, processes_span, first_process }, span);
        } else if inside && fit {
            let total = self.resources;
            let ranges = parts.iter().filter_map(|part| range_of(part.resources, total));
            self.map.push(ranges, resources, count, span);
        }
    }

    /// Whether the range is in bounds. A range that was named before, or that does not ascend, can still be assigned.
    fn bounds_and_order(&mut self, range: RankRange, part: &Part) -> bool {
        let span = part.resources.span;
        let inside = self.resources.is_none_or(|resources| range.last() < resources);
        if let (false, Some(resources)) = (inside, self.resources) {
            self.fault(Kind::ResourceOutOfRange { range, resources }, span);
        }
        let rest = self.named.process_rest(range, part);
        let highest = self.named.highest;
        match self.named.add(range, span) {
            Order::Ascends => {}
            Order::Again(earlier, both) => self.fault(Kind::DuplicateResource { range: both, earlier, rest }, span),
            Order::Descends => {
                self.fault(Kind::ResourceOrder { range, highest: highest.unwrap_or_default(), rest }, span);
            }
        }
        inside
    }
}

/// The range that was written; `None` for one that runs backwards, and for `all` of an unknown number of resources.
fn range_of(written: Written, resources: Option<u32>) -> Option<RankRange> {
    match written.ranks {
        Ranks::Range { first, last } => RankRange::new(first, last),
        Ranks::All => RankRange::counted(0, resources?),
    }
}

enum Order {
    Ascends,
    Again(Span, RankRange),
    Descends,
}

/// The resources that were named so far.
///
/// While ranges ascend, the highest rank is all that is needed. From the first one that does not, all are kept in a map of
/// disjoint ranges: that costs a logarithm, but only for placements that are refused.
#[derive(Default)]
struct Named {
    highest: Option<u32>,
    ascending: Vec<(RankRange, Span)>,
    mixed: BTreeMap<u32, (u32, Span)>,
    /// The resources and the process ranks of the segment before, where it has process ranks.
    rest: Option<(Span, RankRange)>,
}

impl Named {
    fn add(&mut self, range: RankRange, span: Span) -> Order {
        let ascends = self.highest.is_none_or(|highest| highest < range.first());
        self.highest = self.highest.max(Some(range.last()));
        if ascends && self.mixed.is_empty() {
            self.ascending.push((range, span));
            return Order::Ascends;
        }
        let ascending = self.ascending.drain(..).map(|(range, span)| (range.first(), (range.last(), span)));
        self.mixed.extend(ascending);
        let mut order = if ascends { Order::Ascends } else { Order::Descends };
        let (mut first, mut last) = (range.first(), range.last());
        while let Some((&start, &(end, earlier))) =
            self.mixed.range(..=last).next_back().filter(|(_, (end, _))| *end >= first)
        {
            if let Some(both) = RankRange::new(start.max(range.first()), end.min(range.last())) {
                order = Order::Again(earlier, both);
            }
            self.mixed.remove(&start);
            first = first.min(start);
            last = last.max(end);
        }
        self.mixed.insert(first, (last, span));
        order
    }

    /// Whether a bare range, which does not ascend, may have been meant as more process ranks of the segment before.
    fn process_rest(&self, range: RankRange, part: &Part) -> Option<ProcessRest> {
        let (resources, before) = self.rest?;
        let follows = part.processes.is_none() && range.first() == before.last() + 1;
        let processes = RankRange::new(before.first(), range.last())?;
        follows.then_some(ProcessRest { resources, processes })
    }
}
