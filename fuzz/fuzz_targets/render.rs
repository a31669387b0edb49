//! Every diagnostic renders: those of any text on any cluster, with carets within the text, and arbitrary ones.

#![no_main]

use std::ops::Range;

use libfuzzer_sys::arbitrary::{self, Arbitrary};
use libfuzzer_sys::fuzz_target;
use rankplan_core::render::Report;
use rankplan_core::syntax::parse_rank_set;
use rankplan_core::{RankMap, place};
use rankplan_fuzz::Machines;

/// A diagnostic whose places may be outside its text.
#[derive(Arbitrary, Debug)]
struct Strange<'a> {
    warning: bool,
    message: &'a str,
    help: Option<&'a str>,
    place: &'a str,
    path: &'a str,
    line: Option<u32>,
    labels: Vec<(u16, u16, &'a str)>,
}

fuzz_target!(|input: (Machines, Strange<'_>, &str)| {
    let (machines, strange, text) = input;
    let faults = [
        place(text, &machines.pool()).err().unwrap_or_default(),
        RankMap::parse(text, None).err().unwrap_or_default(),
        parse_rank_set(text).err().into_iter().collect(),
    ];
    for fault in faults.iter().flatten() {
        assert!(fault.help.is_some(), "{}: no help", fault.message);
        for label in &fault.labels {
            assert!(text.get(label.span.clone()).is_some(), "{:?} of {text:?}", label.span);
        }
        let labels: Vec<_> = fault.labels.iter().map(|label| (label.span.clone(), label.text.as_str())).collect();
        let place = labels.first().map(|label| label.0.clone());
        let (code, help) = (fault.code.slug(), fault.help.as_deref());
        let report = Report { code, message: &fault.message, help, source: text, labels, ..Report::default() };
        let shown = show(&report);
        assert!(shown.starts_with(&format!("error[{code}]: ")));
        if let Some(place) = place {
            carets_are_below(&shown, text, place);
        }
    }
    show(&Report {
        warning: strange.warning,
        code: "syntax",
        message: strange.message,
        help: strange.help,
        place: strange.place,
        path: strange.path,
        source: text,
        line: strange.line.map(|line| line as usize),
        labels: strange.labels.iter().map(|&(start, end, word)| (start.into()..end.into(), word)).collect(),
    });
});

/// The report as text. In colour, it has the same content.
fn show(report: &Report<'_>) -> String {
    let (plain, colored) = (report.render(false), report.render(true));
    assert!(!plain.contains(|c: char| c.is_control() && c != '\n'), "{plain:?}");
    let mut parts = colored.split("\u{1b}[");
    let first = parts.next().unwrap_or_default().to_owned();
    let stripped = parts.fold(first, |text, part| text + part.split_once('m').expect("a colour ends").1);
    assert_eq!(stripped, plain);
    plain
}

/// The text above the carets is the place of the fault. Skips texts with wide characters, whose columns the library counts,
/// and texts that are too long to show whole.
fn carets_are_below(shown: &str, text: &str, place: Range<usize>) {
    let mut lines = shown.lines().skip_while(|line| !line.starts_with("1 |"));
    let (Some(line), Some(carets)) = (lines.next(), lines.next()) else { return };
    if text.is_ascii() && text.len() <= 140 {
        let first = carets.find('^').expect("a caret");
        let count = carets.chars().filter(|c| *c == '^').count();
        let above = line.get(first..).unwrap_or_default();
        let marked = text[place.clone()].replace(|c: char| c.is_ascii_control(), " ");
        assert!(above.starts_with(marked.trim_end()) && count == place.len().max(1), "{place:?} of {text:?}\n{shown}");
    }
}
