//! A placement of any shape on any small cluster is assigned as a plain reading of the rules says, or refused with the
//! codes that this reading finds.

#![no_main]

use std::collections::{BTreeMap, BTreeSet};

use libfuzzer_sys::arbitrary::{self, Arbitrary};
use libfuzzer_sys::fuzz_target;
use rankplan_core::{Code, Pool, ProcessRank, RankMap, Table, place, place_map};
use rankplan_fuzz::{Machines, Place};

/// `resources[:processes]`, with ranks below 64.
#[derive(Arbitrary, Clone, Copy, Debug)]
struct Part {
    resources: Ranks,
    processes: Option<Ranks>,
}

#[derive(Arbitrary, Clone, Copy, Debug)]
enum Ranks {
    All,
    Range(u8, u8),
}

/// Ranks `first..=last`; none when it runs backwards.
type Range = (u32, u32);

impl Ranks {
    fn range(self, all: Option<u32>) -> Option<Range> {
        match self {
            Ranks::All => Some((0, all?.checked_sub(1)?)),
            Ranks::Range(first, last) => Some((u32::from(first % 64), u32::from(last % 64))),
        }
    }

    fn text(self) -> String {
        self.range(None).map_or_else(|| "all".into(), |(first, last)| format!("{first}-{last}"))
    }
}

fn size((first, last): Range) -> u32 {
    last + 1 - first
}

fuzz_target!(|input: (Machines, Vec<Part>)| {
    let (machines, mut parts) = input;
    // Fewer than there are faults that get a text.
    parts.truncate(24);
    let text: Vec<_> = parts
        .iter()
        .map(|part| match part.processes {
            Some(processes) => format!("{}:{}", part.resources.text(), processes.text()),
            None => part.resources.text(),
        })
        .collect();
    let (text, pool, places) = (text.join(","), machines.pool(), machines.places());
    assert_eq!(pool.len() as usize, places.len());

    let found = place(&text, &pool);
    let found_codes = found.as_ref().err().map(|faults| faults.iter().map(|fault| fault.code.slug()).collect());
    let known = parts
        .iter()
        .flat_map(|part| [Some(part.resources), part.processes])
        .flatten()
        .filter_map(|ranks| ranks.range(None));
    if known.into_iter().any(|(first, last)| first > last)
        || parts.iter().any(|part| matches!(part.processes, Some(Ranks::All)))
    {
        // What else is said depends on how much can still be counted.
        let codes: BTreeSet<_> = found_codes.expect("refused");
        let stops = [Code::ReversedRange, Code::AllProcesses, Code::NoResources].map(Code::slug);
        assert!(stops.iter().any(|code| codes.contains(code)), "{text}: {codes:?}");
        return;
    }
    match (found, expected(&parts, &places)) {
        (Ok((map, table)), Ok(held)) => {
            check_map(&map, &text, &pool, &table, &held);
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
    let ranges: Vec<Range> = parts.iter().filter_map(|part| part.resources.range(Some(count))).collect();

    // Every resource is named once, and after all lower ones.
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

    // Process ranks say which of the ranges before them they are for.
    let mut segments: Vec<(&[Range], u32)> = Vec::new();
    let (mut run, mut next) = (0, 0);
    for (index, part) in parts.iter().enumerate() {
        let Some((first, last)) = part.processes.and_then(|processes| processes.range(None)) else { continue };
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
        if m % k != 0 && k % m != 0 {
            fault(Code::NotMultiple);
        } else if resources.iter().all(|&rank| rank < count) {
            for process in 0..k {
                let share = if m >= k {
                    &resources[process * m / k..(process + 1) * m / k]
                } else {
                    &resources[process * m / k..][..1]
                };
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

fn check_map(map: &RankMap, text: &str, pool: &Pool, table: &Table, held: &[Vec<u32>]) {
    assert_eq!(map.world_size() as usize, held.len());
    assert!(map.resources().iter().eq(held.iter().flatten().copied().collect::<BTreeSet<_>>()));
    assert_eq!(RankMap::parse(&map.to_string(), Some(pool.len())).as_ref(), Ok(map));
    assert_eq!(place_map(map, text, pool).as_ref(), Ok(table));
}

fn check_table(table: &Table, places: &[Place], held: &[Vec<u32>]) {
    assert_eq!(table.len() as usize, held.len());
    // By node: its index in order of first use, and how many processes it has.
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
