//! The placement language: what each text means, and where each faulty text is faulty.

#![allow(clippy::expect_used, reason = "a failed expectation fails the test")]

use proptest::prelude::*;
use rankplan_core::render::Report;
use rankplan_core::syntax::{Part, parse};
use rankplan_core::{Code, Diagnostic, RankMap, place};

use crate::common::pool;

mod common;

proptest! {
    #[test]
    fn every_fault_has_a_place_in_the_text(
        text in "[0-9a-lA:,\\- \u{0}٣_+.é]{0,40}",
        resources in prop::option::of(0_u32..20),
    ) {
        match RankMap::parse(&text, resources) {
            Ok(map) => prop_assert_eq!(RankMap::parse(&map.to_string(), resources), Ok(map)),
            Err(faults) => {
                prop_assert!(!faults.is_empty());
                for fault in faults {
                    check_diagnostic(&text, &fault)?;
                }
            }
        }
    }
}

/// Spans are in the text and on character boundaries, and the diagnostic can be rendered, in colour too.
fn check_diagnostic(text: &str, fault: &Diagnostic) -> Result<(), TestCaseError> {
    prop_assert!(fault.help.is_some(), "{}: no help", fault.message);
    for label in &fault.labels {
        prop_assert!(text.get(label.span.clone()).is_some(), "{:?} of {text:?}", label.span);
    }
    let labels = fault.labels.iter().map(|label| (label.span.clone(), label.text.as_str())).collect();
    let report = Report { code: fault.code.slug(), message: &fault.message, source: text, labels, ..Report::default() };
    prop_assert!(report.render(false).contains(fault.code.slug()));
    prop_assert!(!report.render(true).is_empty());
    Ok(())
}

#[test]
fn process_ranks_decide_which_ranges_belong_together() {
    for (text, canonical) in [
        ("0-1:0-3,3-5,7-10:7-14", "0-1:0-3,3-5:4-6,7-10:7-14"),
        ("0-1,4-5:2-3", "0-1:0-1,4-5:2-3"),
        ("0-1,4-5:0-3", "0-1,4-5:0-3"),
        ("0,2:0", "0,2:0"),
        ("0-1,4-5,8-9:2-3", "0-1:0-1,4-5,8-9:2-3"),
        ("0-1,2-3:0-1", "0-3:0-1"),
        (" ALL ", "0-11:0-11"),
    ] {
        let map = RankMap::parse(text, Some(12)).expect(text);
        assert_eq!(map.to_string(), canonical);
    }
}

#[test]
fn blanks_and_empty_parts_are_skipped() {
    let plain = parse("0-1:0-3,3-5").expect("valid");
    let loose = parse(" ,\t0 - 1\n:0- 3,, 3 -5 ,").expect("valid");
    let ranks =
        |parts: &[Part]| parts.iter().map(|p| (p.resources.ranks, p.processes.map(|w| w.ranks))).collect::<Vec<_>>();
    assert_eq!(ranks(&plain), ranks(&loose));
}

#[test]
fn every_syntax_fault_has_its_place() {
    for (text, span) in [
        ("3-", 2..2),
        ("-1", 0..1),
        ("+3", 0..1),
        ("0_1", 1..2),
        ("007", 0..3),
        ("0..3", 1..2),
        ("0;1", 1..2),
        ("0 1", 2..3),
        ("0:1:2", 3..4),
        (":3", 0..1),
        ("0:", 2..2),
        ("1,4294967295", 2..12),
        ("0-99999999999999999999", 2..22),
        ("٣", 0..2),
        ("allx", 0..4),
        ("0,allé", 2..7),
        ("\u{0}", 0..1),
        ("0-3-5", 3..4),
    ] {
        let fault = parse(text).expect_err(text);
        assert_eq!((fault.code, fault.labels[0].span.clone()), (Code::Syntax, span), "{text}");
        assert!(fault.help.is_some(), "{text}");
    }
}

/// The texts under the labels of each fault.
fn marked(text: &str, resources: u32) -> Vec<(Code, Vec<&str>)> {
    let faults = RankMap::parse(text, Some(resources)).expect_err(text);
    let marked = |fault: &Diagnostic| fault.labels.iter().map(|label| &text[label.span.clone()]).collect();
    faults.iter().map(|fault| (fault.code, marked(fault))).collect()
}

#[test]
fn a_duplicate_points_at_the_first_part_with_the_resource() {
    use Code::{DuplicateResource as Twice, ResourceOrder as Order};
    for (text, expected) in [
        ("0-3,2-5", vec![(Twice, vec!["2-5", "0-3"])]),
        ("0-3,3,2", vec![(Twice, vec!["3", "0-3"]), (Twice, vec!["2", "0-3"])]),
        ("4,0-1,1-3,4", vec![(Order, vec!["0-1"]), (Twice, vec!["1-3", "0-1"]), (Twice, vec!["4", "4"])]),
        ("0,2,4:0,1-3", vec![(Twice, vec!["1-3", "2"])]),
        ("1,all", vec![(Twice, vec!["all", "1"])]),
    ] {
        assert_eq!(marked(text, 8), expected, "{text}");
    }
}

#[test]
fn of_many_faults_the_first_are_reported() {
    let text = (0..500).map(|index| (index / 2).to_string()).collect::<Vec<_>>().join(",");
    let faults = RankMap::parse(&text, None).expect_err("each rank twice");
    assert_eq!(faults.len(), 100);
    for (index, fault) in faults.iter().enumerate() {
        assert_eq!(
            (fault.code, &fault.message),
            (Code::DuplicateResource, &format!("resource rank {index} is named twice"))
        );
    }
    let help = faults[99].help.as_deref().unwrap_or_default();
    assert!(help.ends_with("(150 more faults in this placement not shown)"), "{help}");
}

#[test]
fn after_a_faulty_segment_processes_keep_their_written_ranks() {
    for (text, processes) in [
        ("0-1:0-2,2-5:3", "process 3 "),
        ("0-1:0-2,2,3-6:4", "process 4 "),
        ("0:2,3-4:3", "process 3 "),
        ("9:0,3-4:1", "process 1 "),
    ] {
        let faults = place(text, &pool(&[4, 4])).expect_err(text);
        let spanning = faults.iter().find(|fault| fault.code == Code::SpansNodes).expect(text);
        assert!(spanning.message.starts_with(processes), "{text}: {}", spanning.message);
    }
}
