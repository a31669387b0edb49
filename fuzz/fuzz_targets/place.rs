//! A placement of any shape on any small cluster gives the rows, or the fault codes, of a plain implementation of the rules.

#![no_main]

use std::collections::{BTreeMap, BTreeSet};

use libfuzzer_sys::arbitrary::{self, Arbitrary};
use libfuzzer_sys::fuzz_target;
use rankplan_core::{Code, Pool, ProcessRank, RankMap, Rule, Table, apply, place, ranks_of};
use rankplan_fuzz::{Machines, Place};

/// `resources[:processes]`.
#[derive(Arbitrary, Debug)]
struct Shape {
    resources: Ranks,
    processes: Option<Ranks>,
}

#[derive(Arbitrary, Debug)]
enum Ranks {
    All,
    /// Any two ranks below 64.
    Range(u8, u8),
    /// Up to 16 ranks that follow the part before, as in most valid placements.
    Next(u8),
}

/// First and last rank; may be reversed.
type Range = (u32, u32);

/// Resource ranks, and process ranks if written; an inner `None` is `all`.
type Part = (Option<Range>, Option<Option<Range>>);

impl Ranks {
    fn range(&self, next: &mut u32) -> Option<Range> {
        let range = match *self {
            Ranks::All => return None,
            Ranks::Range(first, last) => (u32::from(first % 64), u32::from(last % 64)),
            Ranks::Next(count) => (*next, *next + u32::from(count % 16)),
        };
        *next = range.1 + 1;
        Some(range)
    }
}

fn text(ranks: Option<Range>) -> String {
    ranks.map_or_else(|| "all".into(), |(first, last)| format!("{first}-{last}"))
}

fn size((first, last): Range) -> u32 {
    last + 1 - first
}

fuzz_target!(|input: (Machines, Vec<Shape>)| {
    let (machines, shapes) = input;
    let (mut resource, mut process) = (0, 0);
    // Fewer than the faults that can be reported.
    let shapes = shapes.iter().take(16);
    let parts: Vec<Part> = shapes
        .map(|Shape { resources, processes }| {
            (resources.range(&mut resource), processes.as_ref().map(|ranks| ranks.range(&mut process)))
        })
        .collect();
    let texts = parts.iter().map(|&(resources, processes)| match processes {
        Some(processes) => format!("{}:{}", text(resources), text(processes)),
        None => text(resources),
    });
    let (text, pool, places) = (texts.collect::<Vec<_>>().join(","), machines.pool(), machines.places());
    assert_eq!(pool.len() as usize, places.len());

    let found = place(&text, &pool);
    let found_codes = found.as_ref().err().map(|faults| faults.iter().map(|fault| fault.code.slug()).collect());
    let backwards = |range: Option<Range>| range.is_some_and(|(first, last)| first > last);
    let stops = |&(resources, processes): &Part| {
        backwards(resources) || processes.is_some_and(|range| range.is_none() || backwards(range))
    };
    if parts.iter().any(stops) {
        // Other faults depend on what can still be counted.
        let codes: BTreeSet<_> = found_codes.expect("rejected");
        let expected = [Code::ReversedRange, Code::AllProcesses, Code::NoResources].map(Code::slug);
        assert!(expected.iter().any(|code| codes.contains(code)), "{text}: {codes:?}");
        return;
    }
    match (found, expected(&parts, &places)) {
        (Ok((map, table)), Ok(held)) => {
            check_map(&map, &pool, &table, &held);
            check_inverse(&table, &pool, &held);
            check_table(&table, &places, &held);
        }
        (_, wanted) => assert_eq!(found_codes, wanted.err(), "{text} on {places:?}"),
    }
});

/// The resources of each process in order, or the codes of all faults.
fn expected(parts: &[Part], places: &[Place]) -> Result<Vec<Vec<u32>>, BTreeSet<&'static str>> {
    let count = places.len() as u32;
    if parts.is_empty() || count == 0 {
        return Err([if parts.is_empty() { Code::EmptyPlacement } else { Code::NoResources }.slug()].into());
    }
    let mut faults = BTreeSet::new();
    let mut fault = |code: Code| {
        faults.insert(code.slug());
    };
    let ranges: Vec<Range> = parts.iter().map(|part| part.0.unwrap_or((0, count - 1))).collect();

    // A placement names each resource once, in ascending order.
    let mut named = BTreeSet::new();
    for &(first, last) in &ranges {
        if last >= count {
            fault(Code::ResourceOutOfRange);
        }
        if named.range(first..=last).next().is_some() {
            fault(Code::DuplicateResource);
        } else if named.last().is_some_and(|&highest| highest > first) {
            fault(Code::ResourceOrder);
        }
        named.extend(first..=last);
    }

    // Process ranks decide which of the ranges before them they belong to.
    let mut segments: Vec<(&[Range], u32)> = Vec::new();
    let (mut run, mut next) = (0, 0);
    for (index, part) in parts.iter().enumerate() {
        let Some((first, last)) = part.1.flatten() else { continue };
        let fits = |split: &usize| next + ranges[run..*split].iter().copied().map(size).sum::<u32>() == first;
        let split = (run..=index).find(fits).unwrap_or_else(|| {
            fault(if index == 0 { Code::ProcessStart } else { Code::ProcessGap });
            index
        });
        segments.extend((run..split).map(|bare| (&ranges[bare..=bare], size(ranges[bare]))));
        segments.push((&ranges[split..=index], size((first, last))));
        (run, next) = (index + 1, last + 1);
    }
    segments.extend((run..ranges.len()).map(|bare| (&ranges[bare..=bare], size(ranges[bare]))));

    let mut held = Vec::new();
    for (ranges, processes) in segments {
        let resources: Vec<u32> = ranges.iter().flat_map(|&(first, last)| first..=last).collect();
        let (m, k) = (resources.len(), processes as usize);
        let fits = |m: usize| m % k == 0 || k % m == 0;
        // Of ranges that are out of bounds, only the part that stays after the fix of that fault must fit.
        if !fits(m) && !fits(resources.iter().filter(|&&resource| resource < count).count()) {
            fault(Code::NotMultiple);
        } else if resources.iter().all(|&rank| rank < count) {
            for process in 0..k {
                let share = &resources[process * m / k..][..(m / k).max(1)];
                let used = share.iter().map(|&rank| places[rank as usize]);
                if used.clone().map(|place| place.node).collect::<BTreeSet<_>>().len() > 1 {
                    fault(Code::SpansNodes);
                }
                if used.map(|place| place.kind).collect::<BTreeSet<_>>().len() > 1 {
                    fault(Code::MixedHardware);
                }
                held.push(share.to_vec());
            }
        }
    }
    if faults.is_empty() { Ok(held) } else { Err(faults) }
}

fn check_map(map: &RankMap, pool: &Pool, table: &Table, held: &[Vec<u32>]) {
    assert_eq!(map.world_size() as usize, held.len());
    assert!(map.resources().iter().eq(held.iter().flatten().copied().collect::<BTreeSet<_>>()));
    assert_eq!(RankMap::parse(&map.to_string(), Some(pool.len())).as_ref(), Ok(map));
    assert_eq!(apply(Rule::Map(map), pool).as_ref(), Ok(table));
}

fn check_inverse(table: &Table, pool: &Pool, held: &[Vec<u32>]) {
    assert_eq!(ranks_of(table, 0..table.len(), pool).as_deref(), Ok(held));
}

fn check_table(table: &Table, places: &[Place], held: &[Vec<u32>]) {
    assert_eq!(table.len() as usize, held.len());
    // By node: its index in order of first use, and its number of processes.
    let mut nodes: BTreeMap<u32, (u32, u32)> = BTreeMap::new();
    for (rank, resources) in (0..).zip(held) {
        let row = table.row(ProcessRank(rank)).expect("a row a process");
        let used: Vec<_> = resources.iter().map(|&rank| places[rank as usize]).collect();
        let found: Vec<_> = row.places().map(|(node, local)| (node.0, local)).collect();
        let wanted: Vec<_> = used.iter().filter_map(|place| Some((place.node, place.local?))).collect();
        assert_eq!(found, wanted);
        let next = nodes.len() as u32;
        let (index, processes) = nodes.entry(used[0].node).or_insert((next, 0));
        assert_eq!((row.rank.0, row.cluster_node_rank.0), (rank, used[0].node));
        assert_eq!((row.placement_node_rank, row.local_rank), (*index, *processes));
        assert_eq!(row.group == 1, used[0].kind == "Franka");
        *processes += 1;
    }
    let sizes: BTreeMap<u32, u32> = nodes.into_values().collect();
    assert!(sizes.into_values().eq(table.local_world_size().iter().copied()));
}
