//! Laws that hold for every rank set, every text and every plan; the model is a `BTreeSet` or a few lines of arithmetic.

#![allow(clippy::expect_used, reason = "a test that expects too much fails, as it should")]

use std::collections::BTreeSet;

use proptest::prelude::*;
use rankplan_core::render::Report;
use rankplan_core::syntax::parse_rank_set;
use rankplan_core::{Code, ProcessRank, RankSet, Rule, apply, place};

use crate::common::pool;

mod common;

type Model = BTreeSet<u32>;

fn ranks() -> impl Strategy<Value = Model> {
    prop::collection::btree_set(0_u32..60, 0..30)
}

fn set(model: &Model) -> RankSet {
    model.iter().copied().collect()
}

proptest! {
    #[test]
    fn sets_are_what_the_model_is(a in ranks(), b in ranks()) {
        let (left, right) = (set(&a), set(&b));
        prop_assert!(left.iter().eq(a.iter().copied()));
        prop_assert_eq!(left.len() as usize, a.len());
        prop_assert_eq!(left.union(&right), set(&(&a | &b)));
        prop_assert_eq!(left.intersection(&right), set(&(&a & &b)));
        prop_assert_eq!(left.difference(&right), set(&(&a - &b)));
        prop_assert!((0..70).all(|rank| left.contains(rank) == a.contains(&rank)));
    }

    #[test]
    fn position_inverts_nth(a in ranks()) {
        let set = set(&a);
        for (position, rank) in a.iter().enumerate() {
            prop_assert_eq!(set.nth(position as u32), Some(*rank));
            prop_assert_eq!(set.position(*rank), Some(position as u32));
        }
        prop_assert_eq!(set.nth(a.len() as u32), None);
    }

    #[test]
    fn parse_inverts_display_of_sets(a in ranks()) {
        prop_assert_eq!(parse_rank_set(&set(&a).to_string()), Ok(set(&a)));
    }

    #[test]
    fn every_process_gets_its_share(
        accelerators in prop::collection::vec(0_u32..5, 1..8),
        per_process in 1_u32..4,
        sharing in 1_u32..4,
        shared in any::<bool>(),
    ) {
        let pool = pool(&accelerators);
        prop_assume!(!pool.by_node());
        let devices: Vec<_> = accelerators.iter().zip(0..).flat_map(|(&n, node)| (0..n).map(move |local| (node, local))).collect();
        let count = devices.len() as u32;
        let (used, processes) = if shared { (count, count * sharing) } else { (count / per_process * per_process, count / per_process) };
        prop_assume!(processes > 0);
        let text = format!("0-{}:0-{}", used - 1, processes - 1);
        let share = |rank: u32| -> &[(u32, u32)] {
            let (first, last) = if shared { (rank / sharing, rank / sharing) } else { (rank * per_process, (rank + 1) * per_process - 1) };
            &devices[first as usize..=last as usize]
        };
        let on_one_node = (0..processes).all(|rank| share(rank).iter().all(|device| device.0 == share(rank)[0].0));
        match place(&text, &pool) {
            Ok((map, table)) => {
                prop_assert!(on_one_node);
                prop_assert_eq!(table.len(), processes);
                prop_assert_eq!(&apply(Rule::Map(&map), &pool).expect("it was placed"), &table);
                let mut seen = vec![0; accelerators.len()];
                for rank in 0..processes {
                    let row = table.row(ProcessRank(rank)).expect("a row a process");
                    let found: Vec<_> = row.devices.iter().map(|&local| (row.cluster_node_rank.0, u32::from(local))).collect();
                    prop_assert_eq!(&found, share(rank));
                    prop_assert_eq!(row.local_rank, seen[row.cluster_node_rank.0 as usize]);
                    seen[row.cluster_node_rank.0 as usize] += 1;
                }
            }
            Err(faults) => {
                prop_assert!(!on_one_node);
                prop_assert_eq!(faults.iter().map(|fault| fault.code).collect::<Vec<_>>(), [Code::SpansNodes]);
            }
        }
    }
}

#[test]
fn codes_are_distinct() {
    let slugs: BTreeSet<_> = Code::ALL.iter().map(|code| code.slug()).collect();
    assert_eq!(slugs.len(), Code::ALL.len());
}

#[test]
fn a_long_line_is_shown_around_its_fault() {
    let text = format!("{}x{}", "0,".repeat(500_000), ",0".repeat(500_000));
    let report = Report {
        code: "syntax",
        message: "found x",
        source: &text,
        labels: vec![(1_000_000..1_000_001, "here")],
        ..Report::default()
    };
    let shown = report.render(false);
    assert!(shown.len() < 1000 && shown.contains("0,x,0") && shown.contains("^ here"), "{shown}");
}

/// Inputs that fuzzing found.
#[test]
fn labels_of_any_kind_are_shown() {
    for (source, start, end, word, shown) in [
        ("abc", 1, 2, "\u{1b}[31m\n", "  |  ^ \u{fffd}[31m\u{fffd}"),
        ("a\u{9b}c", 3, 4, "here", "  |   ^ here"),
        ("abc", 2, 1, "backwards", "  |   ^ backwards"),
    ] {
        let labels = vec![(start..end, word)];
        let report = Report { code: "x", message: "m", source, labels, ..Report::default() };
        let text = report.render(false);
        assert!(text.ends_with(shown), "{text}");
        assert!(!text.contains(|c: char| c.is_control() && c != '\n'), "{text:?}");
    }
}
