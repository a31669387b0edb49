//! Rules other than texts, and the uses of a table: runs, the way back to ranks, other inventories.

#![allow(clippy::expect_used, reason = "a test that expects too much fails, as it should")]

use std::collections::{BTreeSet, HashSet};

use proptest::prelude::*;
use rankplan_core::Counted;
use rankplan_core::{Chunks, Code, Packed, Pool, ProcessRank, RankMap, Rule, Table, apply, place, ranks_of};

use crate::common::{inventory, pool, pool_of};

mod common;

/// A run on one node: the node, the first rank, the resource type, and the devices of each process.
type OnNode = (u32, u32, String, Vec<Vec<u16>>, u32);

/// The runs, unfolded to one for each node.
fn unfolded(table: &Table, at_home: bool) -> Vec<OnNode> {
    let found = table.runs(0..table.len(), at_home);
    let mut runs = Vec::new();
    for run in &found.runs {
        let pattern = &found.patterns[run.pattern as usize];
        let devices: Vec<_> = pattern.by_process().map(<[u16]>::to_vec).collect();
        let kind = table.groups()[pattern.group as usize].kind.name().to_owned();
        for index in 0..run.nodes {
            let first = run.first_rank.0 + index * pattern.processes;
            runs.push((run.node.0 + index, first, kind.clone(), devices.clone(), pattern.processes));
        }
    }
    runs
}

/// The same, row by row.
fn expected_runs(table: &Table, at_home: bool) -> Vec<OnNode> {
    let mut runs: Vec<OnNode> = Vec::new();
    for rank in 0..table.len() {
        let row = table.row(ProcessRank(rank)).expect("a row a process");
        let kind = table.groups()[row.group as usize].kind.name().to_owned();
        if !table.elsewhere().is_empty() && !at_home {
            for (node, index) in row.places() {
                match runs.last_mut() {
                    Some(last) if (last.0, last.1) == (node.0, rank) => last.3[0].push(index),
                    _ => runs.push((node.0, rank, kind.clone(), vec![vec![index]], 1)),
                }
            }
            continue;
        }
        let devices: Vec<_> = if row.devices.is_empty() { vec![] } else { vec![row.devices.to_vec()] };
        match runs.last_mut() {
            Some(last) if last.0 == row.cluster_node_rank.0 && last.2 == kind => {
                last.3.extend(devices);
                last.4 += 1;
            }
            _ => runs.push((row.cluster_node_rank.0, rank, kind, devices, 1)),
        }
    }
    runs
}

/// The laws of every table.
fn check_table(table: &Table, accelerators: &[u32]) -> Result<(), TestCaseError> {
    for at_home in [false, true] {
        prop_assert_eq!(unfolded(table, at_home), expected_runs(table, at_home));
        let patterns = table.runs(0..table.len(), at_home).patterns;
        prop_assert_eq!(patterns.iter().collect::<HashSet<_>>().len(), patterns.len());
    }
    prop_assert_eq!(table.fits(&inventory(accelerators)), Ok(()));
    let used = table.row(ProcessRank(table.len() - 1)).expect("the last row").cluster_node_rank.0;
    let fault = table.fits(&inventory(&accelerators[..used as usize])).expect_err("its node is missing");
    prop_assert!(matches!(fault.code, Code::NodeOutOfRange | Code::ResourceOutOfRange));
    Ok(())
}

fn ranks_in(table: &Table, pool: &Pool) -> Option<Vec<Vec<u32>>> {
    ranks_of(table, 0..table.len(), pool).ok()
}

proptest! {
    #[test]
    fn chunks_take_resources_as_they_are_written(
        accelerators in prop::collection::vec(0_u32..4, 1..6),
        written in prop::collection::vec(0_u32..12, 0..24),
        per_process in 0_usize..4,
        cut in any::<bool>(),
    ) {
        let pool = pool(&accelerators);
        prop_assume!(!pool.by_node());
        let devices: Vec<_> = accelerators.iter().zip(0..).flat_map(|(&n, node)| (0..n as u16).map(move |local| (node, local))).collect();
        // Most lists fit; some name unknown resources, or have a remainder.
        let whole = written.len() / per_process.max(1) * per_process;
        let written = if cut { written[..whole].iter().map(|rank| rank % pool.len()).collect() } else { written };
        let chunks: Vec<_> = written.chunks(per_process.max(1)).collect();
        let repeats = |chunk: &&[u32]| chunk.iter().collect::<BTreeSet<_>>().len() < chunk.len();
        let fault = if per_process == 0 {
            Some(Code::InvalidValue)
        } else if written.is_empty() {
            Some(Code::EmptyPlacement)
        } else if chunks.iter().any(|chunk| chunk.len() < per_process) {
            Some(Code::NotMultiple)
        } else if written.iter().any(|&rank| rank >= pool.len()) {
            Some(Code::ResourceOutOfRange)
        } else {
            chunks.iter().any(repeats).then_some(Code::DuplicateResource)
        };
        match Chunks::from_ranks(&written, per_process as u32).map_err(|fault| vec![fault]).and_then(|chunks| apply(Rule::Chunks(&chunks), &pool)) {
            Ok(table) => {
                prop_assert_eq!(fault, None);
                check_table(&table, &accelerators)?;
                prop_assert_eq!(ranks_in(&table, &pool), Some(chunks.iter().map(|chunk| chunk.to_vec()).collect()));
                prop_assert_eq!(table.len() as usize, chunks.len());
                let mut seen = vec![0; accelerators.len()];
                for (rank, chunk) in (0..).zip(chunks) {
                    let row = table.row(ProcessRank(rank)).expect("a row a process");
                    let wanted: Vec<_> = chunk.iter().map(|&rank| devices[rank as usize]).collect();
                    prop_assert!(row.places().map(|(node, local)| (node.0, local)).eq(wanted.iter().copied()));
                    let home = wanted[0].0;
                    prop_assert_eq!(row.cluster_node_rank.0, home);
                    prop_assert_eq!(row.elsewhere.len(), wanted.iter().filter(|device| device.0 != home).count());
                    prop_assert_eq!(row.local_rank, seen[home as usize]);
                    seen[home as usize] += 1;
                }
            }
            Err(faults) => prop_assert_eq!(faults.iter().map(|fault| Some(fault.code)).collect::<Vec<_>>(), [fault]),
        }
    }

    #[test]
    fn packed_windows_use_every_resource_once(start in 0_u32..6, windows in 1_u32..4, each in 1_u32..4, stride in 1_u32..4) {
        let end = start + windows * each * stride - 1;
        let packed = Packed::new(start, end, each, stride).expect("whole windows");
        let table = apply(Rule::Packed(&packed), &pool(&[64])).expect("one node");
        check_table(&table, &[64])?;

        let mut used: Vec<_> = table.devices().iter().map(|&local| u32::from(local)).collect();
        used.sort_unstable();
        prop_assert_eq!(used, (start..=end).collect::<Vec<_>>());
        for rank in 0..table.len() {
            let row = table.row(ProcessRank(rank)).expect("a row a process");
            prop_assert!(row.devices.windows(2).all(|pair| u32::from(pair[1] - pair[0]) == stride));
        }
    }
}

fn codes<T: std::fmt::Debug>(refused: Result<T, Vec<rankplan_core::Diagnostic>>) -> Vec<Code> {
    refused.expect_err("refused").into_iter().map(|fault| fault.code).collect()
}

#[test]
fn chunks_are_printed_as_they_are_read() {
    for (ranks, text) in [
        (&[0, 1, 2, 3, 8, 9, 10, 11, 2][..], "0-3,8-11,2"),
        (&[3, 2, 1], "3,2,1"),
        (&[0, 0, 1], "0,0-1"),
        (&[4294967293, 4294967294, 0], "4294967293-4294967294,0"),
    ] {
        let chunks = Chunks::from_ranks(ranks, 1).expect(text);
        assert_eq!(chunks.to_string(), text);
        assert_eq!(Chunks::parse(text, 1), Ok(chunks.clone()));
        assert_eq!(chunks.resources(), ranks.iter().copied().collect());
        assert_eq!(chunks.world_size() as usize, ranks.len());
    }
    assert_eq!(Chunks::parse("0-3,4", 1), Chunks::parse("0-4", 1));
}

#[test]
fn chunks_that_cannot_be_are_refused_before_there_is_a_pool() {
    for (text, per_process, code) in [
        ("0-3", 0, Code::InvalidValue),
        ("", 1, Code::EmptyPlacement),
        ("0-3", 3, Code::NotMultiple),
        ("0-20000000", 1, Code::TooManyProcesses),
        ("0-4294967294,0", 65536, Code::InvalidValue),
        ("3-0", 1, Code::ReversedRange),
        ("0:1", 1, Code::Syntax),
    ] {
        assert_eq!(Chunks::parse(text, per_process).expect_err(text).code, code, "{text}");
    }
    assert_eq!(Chunks::from_ranks(&[u32::MAX], 1).expect_err("no rank").code, Code::InvalidValue);
}

#[test]
fn a_map_keeps_its_text_and_equals_one_without() {
    let map = RankMap::parse("0-1, 2", None).expect("valid");
    let (placed, _) = place("0-1, 2", &pool(&[4])).expect("valid");
    let lists = RankMap::from_lists(vec![vec![0, 1], vec![2]]).expect("fits");
    let shared = RankMap::parse("0-1:0, 2", None).expect("valid");
    assert_eq!([map.text(), placed.text(), lists.text()], ["0-1, 2", "0-1, 2", ""]);
    assert!(map == placed && shared == lists);
    let fault = &apply(Rule::Map(&map), &pool(&[2])).expect_err("too small")[0];
    assert_eq!((fault.code, fault.labels[0].span.clone()), (Code::ResourceOutOfRange, 5..6));
}

#[test]
fn a_map_reads_what_it_prints() {
    for lists in
        [vec![vec![0], vec![0], vec![1]], vec![vec![0], vec![0, 1]], vec![vec![0, 2], vec![1, 2], vec![1, 4, 5]]]
    {
        let map = RankMap::from_lists(lists).expect("valid");
        assert_eq!(RankMap::read(&map.to_string()), Ok(map));
    }
    for (text, code) in [
        ("0-2:0-1", Code::NotMultiple),
        ("0,0:0", Code::ResourceOrder),
        ("0:0,0:2", Code::ProcessGap),
        ("0:1", Code::ProcessStart),
        ("0:0-16777216", Code::TooManyProcesses),
        ("", Code::EmptyPlacement),
        ("all", Code::NoResources),
    ] {
        assert_eq!(RankMap::read(text).expect_err(text)[0].code, code, "{text}");
    }
}

#[test]
fn packed_windows_are_refused_where_nodes_are_counted() {
    let packed = Packed::new(0, 3, 2, 1).expect("whole windows");
    for pool in [pool(&[0; 8]), pool_of(&[8; 8], Counted::Nodes)] {
        assert_eq!(codes(apply(Rule::Packed(&packed), &pool)), [Code::NoResources]);
    }
}

#[test]
fn equal_nodes_are_one_run() {
    let runs = |rule: Rule<'_>, accelerators: &[u32]| {
        let table = apply(rule, &pool(accelerators)).expect("valid");
        let found = table.runs(0..table.len(), false);
        found.runs.iter().map(|run| (run.node.0, run.nodes, run.first_rank.0, run.pattern)).collect::<Vec<_>>()
    };
    let map = |text| RankMap::parse(text, Some(100)).expect("valid");
    assert_eq!(runs(Rule::Map(&map("0-31")), &[8; 4]), [(0, 4, 0, 0)]);
    assert_eq!(runs(Rule::Map(&map("0-7,16-31")), &[8; 4]), [(0, 1, 0, 0), (2, 2, 8, 0)]);
    assert_eq!(
        runs(Rule::Map(&map("0-23")), &[8, 4, 8, 8]),
        [(0, 1, 0, 0), (1, 1, 8, 1), (2, 1, 12, 0), (3, 1, 20, 1)]
    );
    assert_eq!(runs(Rule::Map(&map("0-3:0-7")), &[0; 4]), [(0, 4, 0, 0)]);
    // One process over two nodes is a run on each; the last of one and the first of the next differ by node and rank only.
    let chunks = Chunks::parse("0-15", 8).expect("valid");
    assert_eq!(runs(Rule::Chunks(&chunks), &[4; 4]), [(0, 1, 0, 0), (1, 2, 0, 0), (3, 1, 1, 0)]);
}

#[test]
fn ranks_are_those_of_the_pool_that_is_asked() {
    let nodes = pool_of(&[4, 0, 4], Counted::Nodes);
    let cluster = pool(&[4, 0, 4]);
    let table = apply(Rule::Chunks(&Chunks::parse("6,1-3", 2).expect("valid")), &cluster).expect("valid");
    assert_eq!(ranks_in(&table, &cluster), Some(vec![vec![6, 1], vec![2, 3]]));
    assert_eq!(ranks_in(&table, &nodes), Some(vec![vec![2], vec![0]]));
    assert_eq!(ranks_in(&table, &pool(&[4])), None);
    let (_, by_node) = place("0-2", &nodes).expect("valid");
    assert_eq!(ranks_in(&by_node, &nodes), Some(vec![vec![0], vec![1], vec![2]]));
    assert_eq!(ranks_in(&by_node, &cluster), None);
    assert_eq!(ranks_in(&by_node, &pool_of(&[4, 0], Counted::Nodes)), None);
}
