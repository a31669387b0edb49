//! Requests in the file of a plan: one entry for equal groups in a row, or, in version 2, one for each group.

use std::collections::HashSet;

use crate::amounts::{self, Amounts};
use crate::diagnostic::{Code, Diagnostic};
use crate::group_names::GroupNames;
use crate::ids::{MAX_NODES, MAX_PROCESSES};
use crate::node_runs::{NodeRun, NodeRuns};
use crate::order::NodeOrder;
use crate::read::place::Place;
use crate::read::reader::{Reader, must_be};
use crate::read::record::{Read, Record};
use crate::read::table::{Absent, Field, Kind, Table};
use crate::read::value::Value;
use crate::requests::{self, Bundle, Bundles, Requests, Row, runs_of};
use crate::words::{grouped, plural};

/// The strategy that an entry need not state.
const USUAL_STRATEGY: &str = "PACK";
/// The most groups, and the most bundles, of all entries together.
const MOST: u64 = 1 << 30;
/// The largest number in a name: the names of a row count up to it.
const LARGEST_NUMBER: u64 = 999_999_999;

const TIMES: Kind = Kind::Count { least: 1, most: MAX_PROCESSES as i64 };
const SIZE: Kind = Kind::Count { least: 0, most: MAX_PROCESSES as i64 };
const NODE: Kind = Kind::Count { least: 0, most: MAX_NODES as i64 - 1 };
static A_BUNDLE: Kind = Kind::Tuple(&[TIMES, SIZE]);
static PLACED_BUNDLES: Kind = Kind::Tuple(&[TIMES, SIZE, Kind::OrNull(&SIZE)]);
static A_RESERVE: Kind = Kind::Record(&RESERVE);
static A_RUN: Kind = Kind::Tuple(&[NODE, TIMES, TIMES]);

const NAME: Field =
    Field::new("name", Kind::OrNull(&Kind::Text), "Regular expression for the whole name of each group.");
const COMPONENT: Field =
    Field::new("component", Kind::Text, "The first component on them, empty if none is.").absent(Absent::Never);
const COMMON: &[Field] = &[
    Field::new("strategy", Kind::OrNull(&Kind::Text), "Ray's; PACK by default; null for actors without a group."),
    Field::new("optional", Kind::Switch, "Whether they may never come; then they have no nodes."),
    Field::new("order", Kind::Word(&NodeOrder::NAMES), "What the trainer sorts the nodes of their pool by.")
        .absent(Absent::Null),
];

/// The fields of equal groups in a row.
pub static GROUPS: Table = Table {
    called: None,
    groups: &[
        &[
            COMPONENT,
            NAME,
            Field::new("names", Kind::Record(&NUMBERED), "In place of a name: names with a number that counts up."),
            Field::new("groups", TIMES, "Their number, 1 by default."),
            Field::new(
                "bundles",
                Kind::List { of: &A_BUNDLE, empty: false },
                "[times, accelerators] of equal bundles.",
            )
            .absent(Absent::Never),
            Field::new(
                "reserve",
                Kind::List { of: &A_RESERVE, empty: false },
                "What each bundle of each entry of `bundles` reserves besides accelerators.",
            ),
            Field::new(
                "nodes",
                Kind::List { of: &A_RUN, empty: true },
                "[first node, nodes, bundles of each] for the bundles of all groups.",
            ),
        ],
        COMMON,
    ],
    check: None,
};

static RESERVE: Table = Table { called: None, groups: &[amounts::FIELDS], check: None };

static NUMBERED: Table = Table {
    called: None,
    groups: &[&[
        Field::new("before", Kind::Text, "The text before the number."),
        Field::new("first", Kind::Count { least: 0, most: LARGEST_NUMBER as i64 }, "The number of the first group.")
            .absent(Absent::Never),
        Field::new("after", Kind::Text, "The text after the number."),
    ]],
    check: None,
};

/// The fields of a group in version 2.
static GROUP: Table = Table {
    called: None,
    groups: &[
        &[
            COMPONENT,
            NAME,
            Field::new(
                "bundles",
                Kind::List { of: &PLACED_BUNDLES, empty: false },
                "[times, accelerators, node] of equal bundles.",
            )
            .absent(Absent::Never),
        ],
        COMMON,
    ],
    check: None,
};

/// Requests, and names of groups that must be regular expressions, each with the index and the key of its entry.
///
/// Names that only differ in the number at their end are expressions if one of them is. Of names with a number elsewhere,
/// these are the first and the last.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stated {
    /// The requests.
    pub requests: Requests,
    /// The names.
    pub names: Vec<(usize, &'static str, String)>,
}

/// The requests at a place, given the number of nodes, if it is known. `single`: each entry is one group, as in version 2.
pub fn read_requests(
    reader: &mut Reader<'_>,
    value: &Value,
    at: &Place<'_>,
    nodes: Option<u32>,
    single: bool,
) -> Stated {
    let mut stated = Stated::default();
    let Value::List(items) = value else {
        reader.add(at, fault(must_be("`requests`", value, "a list", "").message));
        return stated;
    };
    let mut templates = HashSet::new();
    let (mut groups, mut bundles) = (0, 0);
    for (index, item) in items.iter().enumerate() {
        let at = at.index(index);
        let before = reader.faults.len();
        let row = if single { read_group(reader, item, &at) } else { read_row(reader, item, &at) };
        let Some(row) = row else { continue };
        let key = if single { "bundles" } else { "nodes" };
        check_nodes(reader, &row, &at.name(key), nodes);
        let named = if item.get("names").is_some() { "names" } else { "name" };
        stated.names.extend(patterns(&row, &mut templates).into_iter().map(|name| (index, named, name)));
        groups += u64::from(row.groups);
        bundles += u64::from(row.groups) * u64::from(row.kind.num_bundles());
        if groups > MOST || bundles > MOST {
            reader.add(&at, fault(format!("the requests have more than {} bundles", grouped(MOST))));
            break;
        }
        if reader.faults.len() == before {
            stated.requests.push(row);
        }
    }
    stated
}

/// A fault without a help of its own.
fn fault(message: String) -> Diagnostic {
    Diagnostic::new(Code::InvalidPlan, message)
}

/// Equal groups in a row; `None` after faults.
fn read_row(reader: &mut Reader<'_>, value: &Value, at: &Place<'_>) -> Option<Row> {
    let mut record = reader.record(value, at, &GROUPS)?;
    let before = reader.faults.len();
    let groups = record.take("groups").map_or(1, |groups| groups.into_int() as u32);
    let bundles: Vec<_> = tuples(record.take("bundles")).map(|bundle| (bundle[0], bundle[1])).collect();
    let runs: Vec<_> =
        tuples(record.take("nodes")).map(|run| NodeRun { first: run[0], nodes: run[1], each: run[2] }).collect();
    let each = runs.iter().map(|run| (run.nodes, run.each));
    let fits = few(bundles.iter().map(|&(times, _)| (times, groups))) && few(each);
    if !fits {
        let most = grouped(u64::from(MAX_PROCESSES));
        reader.add(at, fault(format!("these groups have more than {most} bundles")));
    }
    let mut nodes = NodeRuns::default();
    for run in runs.into_iter().filter(|_| fits) {
        if u64::from(run.first) + u64::from(run.nodes) <= u64::from(MAX_NODES) {
            nodes.push_run(run);
        } else {
            reader.add(&at.name("nodes"), fault(format!("a plan has at most {} nodes", grouped(u64::from(MAX_NODES)))));
        }
    }
    let names = read_names(reader, &mut record, at, groups);
    let mut reserve = amounts_of(&mut record);
    if !reserve.is_empty() && reserve.len() != bundles.len() {
        let counted = |number: usize| format!("{} {}", grouped(number as u64), words(number, "entry", "entries"));
        let message = format!("`bundles` has {}, but `reserve` has {}", counted(bundles.len()), counted(reserve.len()));
        reader.add(&at.name("reserve"), fault(message));
    }
    reserve.resize(bundles.len(), Amounts::default());
    let bundles = bundles.into_iter().zip(reserve);
    let bundles = bundles.map(|((times, accelerators), amounts)| (times, Bundle { accelerators, amounts }));
    let kind = kind(&mut record, bundles);
    (reader.faults.len() == before).then_some(Row { kind, names, groups, nodes })
}

/// What the bundles of each entry reserve besides accelerators.
fn amounts_of(record: &mut Record) -> Vec<Amounts> {
    let reserve = record.take("reserve").map(Read::into_list).unwrap_or_default();
    reserve.into_iter().map(|amounts| Amounts::take(&mut amounts.into_record())).collect()
}

fn words(number: usize, one: &'static str, several: &'static str) -> &'static str {
    if number == 1 { one } else { several }
}

/// The names of groups in a row.
///
/// A digit next to the number would be a part of it: then it could not be told where the number is.
fn read_names(reader: &mut Reader<'_>, record: &mut Record, at: &Place<'_>, groups: u32) -> Option<GroupNames> {
    let name = record.take("name").and_then(Read::into_optional_text);
    let Some(mut numbered) = record.take("names").map(Read::into_record) else { return name.map(GroupNames::Same) };
    let at = at.name("names");
    let mut text = |key| numbered.take(key).map(Read::into_text).unwrap_or_default();
    let (before, after) = (text("before"), text("after"));
    let first = numbered.take("first").map(Read::into_int).unwrap_or_default() as u32;
    if name.is_some() {
        reader.add(&at, fault("groups have either `name` or `names`".to_owned()));
    }
    if before.ends_with(|last: char| last.is_ascii_digit()) {
        reader.add(&at.name("before"), fault("`before` ends with a digit: it is a part of the number".to_owned()));
    }
    if after.starts_with(|first: char| first.is_ascii_digit()) {
        reader.add(&at.name("after"), fault("`after` starts with a digit: it is a part of the number".to_owned()));
    }
    if u64::from(first) + u64::from(groups) > LARGEST_NUMBER {
        reader.add(&at.name("first"), fault(format!("the numbers exceed {}", grouped(LARGEST_NUMBER))));
    }
    Some(match groups {
        1 => GroupNames::Same(format!("{before}{first}{after}")),
        _ => GroupNames::Numbered { before, first, after },
    })
}

/// A group of version 2; `None` after faults.
fn read_group(reader: &mut Reader<'_>, value: &Value, at: &Place<'_>) -> Option<Row> {
    let mut record = reader.record(value, at, &GROUP)?;
    let (mut bundles, mut nodes) = (Vec::new(), NodeRuns::default());
    let stated = record.take("bundles").map(Read::into_list).unwrap_or_default();
    let runs: Vec<_> = stated.into_iter().map(|run| run.into_list()).collect();
    let times = |run: &Vec<Read>| if let Some(Read::Int(times)) = run.first() { *times as u32 } else { 0 };
    if !few(runs.iter().map(|run| (times(run), 1))) {
        let most = grouped(u64::from(MAX_PROCESSES));
        reader.add(&at.name("bundles"), fault(format!("this group has more than {most} bundles")));
        return None;
    }
    for run in &runs {
        let &[Read::Int(times), Read::Int(size), ref node] = &run[..] else { continue };
        bundles.push((times as u32, Bundle::from(size as u32)));
        if let Read::Int(node) = node {
            nodes.push(*node as u32, times as u32);
        }
    }
    let names = record.take("name").and_then(Read::into_optional_text).map(GroupNames::Same);
    Some(Row { kind: kind(&mut record, bundles), names, groups: 1, nodes })
}

/// Lists of whole numbers.
fn tuples(read: Option<Read>) -> impl Iterator<Item = Vec<u32>> {
    let lists = read.map(Read::into_list).unwrap_or_default().into_iter();
    lists.map(|list| list.into_list().into_iter().map(|number| number.into_int() as u32).collect())
}

/// Whether these products are as few as a plan can have processes.
fn few(numbers: impl Iterator<Item = (u32, u32)>) -> bool {
    let total: u64 = numbers.map(|(one, other)| u64::from(one) * u64::from(other)).sum();
    total <= u64::from(MAX_PROCESSES)
}

fn kind(record: &mut Record, bundles: impl IntoIterator<Item = (u32, Bundle)>) -> requests::Kind {
    let strategy = record.take("strategy").map(Read::into_optional_text);
    requests::Kind {
        component: record.take("component").map(Read::into_text).unwrap_or_default(),
        strategy: strategy.unwrap_or_else(|| Some(USUAL_STRATEGY.to_owned())),
        optional: record.take("optional").is_some_and(Read::into_bool),
        order: record.take("order").and_then(|order| NodeOrder::named(&order.into_text())),
        bundles: runs_of(bundles),
    }
}

/// Record that bundles have no node, or one that the plan has not.
fn check_nodes(reader: &mut Reader<'_>, row: &Row, at: &Place<'_>, nodes: Option<u32>) {
    let bundles = row.groups * row.kind.num_bundles();
    let last = row.nodes.runs().iter().map(|run| run.first + (run.nodes - 1)).max().unwrap_or_default();
    if row.kind.optional && !row.nodes.is_empty() {
        reader.add(at, fault("an optional request has no nodes".to_owned()));
    } else if !row.kind.optional && row.nodes.len() < bundles {
        reader.add(at, fault("a bundle has no node".to_owned()));
    } else if !row.kind.optional && row.nodes.len() > bundles {
        let counted = format!("{} {}", grouped(u64::from(bundles)), plural(bundles, "bundle"));
        reader.add(at, fault(format!("{counted}, but nodes for {}", grouped(u64::from(row.nodes.len())))));
    } else if let Some(known) = nodes.filter(|&known| last >= known) {
        reader.add(at, fault(format!("a bundle is on node {last}, but the plan has {known}")));
    }
}

/// The names of a row that tell whether all are regular expressions; none if names that only differ in their last number
/// are known.
fn patterns(row: &Row, templates: &mut HashSet<String>) -> Vec<String> {
    let Some(names) = &row.names else { return Vec::new() };
    let first = names.get(0);
    let ends_with_number = match names {
        GroupNames::Same(_) => true,
        GroupNames::Numbered { after, .. } => after.is_empty(),
    };
    let template = first.trim_end_matches(|last: char| last.is_ascii_digit());
    if ends_with_number && !in_escape(template) {
        return if templates.insert(template.to_owned()) { vec![first] } else { Vec::new() };
    }
    let last = names.get(row.groups - 1);
    if first == last { vec![first] } else { vec![first, last] }
}

/// Whether digits after a text could be a part of an escape in it, such as `\x41`.
fn in_escape(text: &str) -> bool {
    text.rsplit_once('\\').is_some_and(|(_, rest)| {
        rest.bytes().all(|byte| matches!(byte, b'x' | b'u' | b'U' | b'0'..=b'9' | b'a'..=b'f' | b'A'..=b'F'))
    })
}

/// Requests as plain values.
pub fn requests_value(requests: &Requests) -> Value {
    Value::list(requests.rows().iter().map(row_value))
}

fn row_value(row: &Row) -> Value {
    let pair = |run: &Bundles| Value::list([run.times, run.each.accelerators].map(Value::from));
    let reserve = |run: &Bundles| Value::map(run.each.amounts.values());
    let run = |run: &NodeRun| Value::list([run.first, run.nodes, run.each].map(Value::from));
    let (name, names) = match &row.names {
        None => (None, None),
        Some(GroupNames::Same(name)) => (Some(Value::from(name.as_str())), None),
        Some(GroupNames::Numbered { before, first, after }) => {
            let first = Value::from(*first);
            let texts = [("before", before), ("after", after)].map(|(key, text)| (key, Value::from(text.as_str())));
            let [before, after] = texts.map(|part| Some(part).filter(|(_, text)| !text.is_empty()));
            (None, Some(Value::map([before, Some(("first", first)), after].into_iter().flatten())))
        }
    };
    let kind = &row.kind;
    let reserves = kind.bundles.iter().any(|run| !run.each.amounts.is_empty());
    let strategy = kind.strategy.as_deref().map_or(Value::Null, Value::from);
    let fields = [
        ("component", Some(Value::from(kind.component.as_str()))),
        ("name", name),
        ("names", names),
        ("groups", Some(Value::from(row.groups)).filter(|_| row.groups > 1)),
        ("bundles", Some(Value::list(kind.bundles.iter().map(pair)))),
        ("reserve", reserves.then(|| Value::list(kind.bundles.iter().map(reserve)))),
        ("nodes", Some(Value::list(row.nodes.runs().iter().map(run))).filter(|nodes| !nodes.is_empty())),
        ("strategy", Some(strategy).filter(|strategy| *strategy != Value::from(USUAL_STRATEGY))),
        ("optional", kind.optional.then_some(Value::Bool(true))),
        ("order", kind.order.map(|order| Value::from(order.name()))),
    ];
    Value::map(fields.into_iter().filter_map(|(key, field)| Some((key, field?))))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::read::json::json;
    use crate::read::parse::parse;

    fn read(text: &str, single: bool) -> (Stated, Vec<String>) {
        let mut reader = Reader::new(None);
        let value = parse(text).unwrap_or(Value::Null);
        let stated = read_requests(&mut reader, &value, &Place::WHOLE.name("requests"), Some(4), single);
        let path = |fault: &crate::read::place::Fault| crate::read::place::path_text(&fault.path);
        let faults = reader.faults.iter().map(|fault| format!("{}: {}", path(fault), fault.diagnostic.message));
        (stated, faults.collect())
    }

    #[test]
    fn requests_are_read_as_they_are_written() {
        for text in [
            "[]",
            r#"[{"bundles": [[8, 1]], "component": "actor", "groups": 4, "names": {"before": "pool_8:", "first": 0}, "nodes": [[0, 4, 8]], "order": "text", "strategy": "STRICT_PACK"}]"#,
            r#"[{"bundles": [[1, 8]], "component": "a", "groups": 2, "names": {"after": "v_8:0", "before": "p", "first": 9}, "nodes": [[3, 1, 1], [0, 1, 1]]}]"#,
            r#"[{"bundles": [[1, 8]], "component": "", "name": "x(?:_8){9999}", "optional": true, "strategy": null}]"#,
            r#"[{"bundles": [[1, 4], [2, 2]], "component": "a", "groups": 3, "nodes": [[0, 3, 3]]}]"#,
        ] {
            let (stated, faults) = read(text, false);
            assert_eq!((json(&requests_value(&stated.requests)).as_str(), faults), (text, vec![]));
        }
    }

    #[test]
    fn groups_of_version_2_are_joined() {
        let (stated, faults) = read(
            r#"[{"bundles": [[4, 1, 0], [4, 1, 1]], "component": "a", "name": "g:0"},
                {"bundles": [[8, 1, 2]], "component": "a", "name": "g:1"},
                {"bundles": [[8, 1, null]], "component": "a", "name": "g:2", "optional": true}]"#,
            true,
        );
        assert_eq!(faults, Vec::<String>::new());
        assert_eq!(
            json(&requests_value(&stated.requests)),
            r#"[{"bundles": [[8, 1]], "component": "a", "groups": 2, "names": {"before": "g:", "first": 0}, "#
                .to_owned()
                + r#""nodes": [[0, 2, 4], [2, 1, 8]]}, "#
                + r#"{"bundles": [[8, 1]], "component": "a", "name": "g:2", "optional": true}]"#
        );
        assert_eq!(stated.names, [(0, "name", "g:0".to_owned())]);
    }

    #[test]
    fn damaged_requests_are_refused() {
        let most = "[[16777216, 1]]";
        for (entry, expected) in [
            (r#""bundles": []"#, "requests[0].bundles: `bundles` is empty"),
            (r#""bundles": [[0, 1]]"#, "requests[0].bundles[0][0]: `bundles[0][0]` is 0; it must be 1 or more"),
            (r#""bundles": [[1]]"#, "requests[0].bundles[0]: `bundles[0]` is [1]; it must be a list of 2 values"),
            (r#""bundles": [[1, 1]]"#, "requests[0].nodes: a bundle has no node"),
            (r#""bundles": [[1, 1]], "nodes": [[0, 2, 1]]"#, "requests[0].nodes: 1 bundle, but nodes for 2"),
            (
                r#""bundles": [[1, 1]], "nodes": [[4, 1, 1]]"#,
                "requests[0].nodes: a bundle is on node 4, but the plan has 4",
            ),
            (
                r#""bundles": [[1, 1]], "nodes": [[0, 1, 1]], "optional": true"#,
                "requests[0].nodes: an optional request has no nodes",
            ),
            (
                r#""bundles": [[1, 1]], "nodes": [[0, 1, 1]], "name": "a", "names": {"first": 1}"#,
                "requests[0].names: groups have either `name` or `names`",
            ),
            (
                r#""bundles": [[1, 1]], "nodes": [[0, 1, 1]], "names": {"before": "a1", "first": 1}"#,
                "requests[0].names.before: `before` ends with a digit: it is a part of the number",
            ),
            (
                r#""bundles": [[1, 1]], "nodes": [[0, 1, 1]], "names": {"after": "1", "first": 1}"#,
                "requests[0].names.after: `after` starts with a digit: it is a part of the number",
            ),
            (
                r#""bundles": [[1, 1]], "nodes": [[0, 1, 1]], "names": {"first": 999999999}"#,
                "requests[0].names.first: the numbers exceed 999,999,999",
            ),
            (
                r#""bundles": [[1, 1]], "nodes": [[16777215, 2, 1]], "groups": 2"#,
                "requests[0].nodes: a plan has at most 16,777,216 nodes",
            ),
            (
                &format!(r#""bundles": {most}, "groups": 2"#),
                "requests[0]: these groups have more than 16,777,216 bundles",
            ),
        ] {
            let (stated, faults) = read(&format!(r#"[{{"component": "a", {entry}}}]"#), false);
            assert_eq!(faults, [expected]);
            assert!(stated.requests.is_empty());
        }
        let many = format!(
            "[{}]",
            vec![format!(r#"{{"component": "a", "bundles": {most}, "optional": true}}"#); 65].join(",")
        );
        let (stated, faults) = read(&many, false);
        assert_eq!((stated.requests.len(), faults.len()), (64, 1));
        assert_eq!(read("3", false).1, ["requests: `requests` is 3; it must be a list"]);
    }

    #[test]
    fn names_that_tell_whether_all_are_expressions() {
        let nodes = r#""bundles": [[1, 1]], "component": "a", "nodes": [[0, 2, 1]], "groups": 2"#;
        for (names, expected) in [
            (r#"{"before": "a(", "first": 8}"#, vec!["a(8"]),
            (r#"{"before": "a", "first": 8, "after": "b"}"#, vec!["a8b", "a9b"]),
            (r#"{"before": "a\\", "first": 8}"#, vec!["a\\8", "a\\9"]),
            (r#"{"before": "a\\-b:", "first": 8}"#, vec!["a\\-b:8"]),
        ] {
            let (stated, _) = read(&format!(r#"[{{{nodes}, "names": {names}}}]"#), false);
            assert_eq!(stated.names.iter().map(|(_, _, name)| name.as_str()).collect::<Vec<_>>(), expected);
        }
    }
}
