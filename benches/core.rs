//! Benchmarks of the core alone: read, check, assign, and set algebra on 131,072 nodes x 8, compared with writing columns of
//! the same size.
//!
//! `cargo bench -p rankplan-core`; with a name, e.g. `-- assign/all`, it runs the matching cases. At the end it prints, for
//! each case, the shortest time with memory that was used before, the shortest time in a new process (its memory is fresh, so
//! the time includes page faults), and their ratios to writing the columns. Cases that also ran at 1/128 of the size have
//! their growth: the exponent of time over size, 1 if linear.

#![allow(clippy::expect_used, reason = "the inputs are fixed and valid")]

use std::fmt::Write as _;
use std::hint::black_box;
use std::process::Command;
use std::time::{Duration, Instant};

use criterion::Criterion;
use rankplan_core::syntax::parse;
use rankplan_core::{
    Chunks, Counted, Inventory, NodeSpec, Packed, Pool, RankMap, RankSet, Rule, Selection, apply, place, ranks_of,
};

const NODES: u32 = 131_072;
const EACH: u32 = 8;
const TOTAL: u32 = NODES * EACH;
/// The smaller size of the cases with growth.
const SMALL: u32 = TOTAL / 128;
const COLUMNS: &str = "assign/columns only";
/// Names the case that a new process runs once.
const FRESH: &str = "RANKPLAN_BENCH_FRESH";

type Work<'a> = Box<dyn FnMut() + 'a>;

fn inventory() -> Inventory {
    let ids = (0..EACH).map(|index| index.to_string()).collect();
    let spec = NodeSpec { accelerator_type: "NV_GPU".into(), accelerator_ids: ids };
    Inventory::new(vec![(RankSet::first_ranks(NODES), spec)]).expect("a uniform inventory")
}

fn pool(inventory: &Inventory, counted: Counted) -> Pool {
    let selection = Selection { label: "cluster".into(), nodes: RankSet::first_ranks(NODES), counted };
    Pool::new(inventory, &[selection]).expect("all nodes")
}

/// The minimum of any implementation: 16 bytes per row and 2 per device.
fn write_columns() -> ([Vec<u32>; 4], Vec<u16>) {
    let words = [
        (0..TOTAL).map(|rank| rank / EACH).collect(),
        (0..TOTAL).map(|rank| rank / EACH).collect(),
        (0..TOTAL).map(|rank| rank % EACH).collect(),
        (0..=TOTAL).collect(),
    ];
    (words, (0..TOTAL).map(|rank| (rank % EACH) as u16).collect())
}

/// Segments in one allocation, so that a new process has no used memory to reuse.
fn segments<T: std::fmt::Display>(count: u32, segment: impl Fn(u32) -> T) -> String {
    let mut text = String::with_capacity(40 * count as usize);
    for index in 0..count {
        write!(text, "{}{}", if index > 0 { "," } else { "" }, segment(index)).expect("text");
    }
    text
}

/// Placements of `count` resources or processes with at least one fault.
fn faulty(count: u32) -> [(&'static str, String); 5] {
    [
        ("one duplicate", segments(count, |index| if index + 1 < count { index } else { 0 })),
        ("descending", segments(count, |index| count - 1 - index)),
        ("each twice", segments(count, |index| index / 2)),
        (
            "no multiple",
            segments(count / 4, |index| format!("{0}-{1}:{0}-{2}", index * 3, index * 3 + 2, index * 3 + 1)),
        ),
        ("commas", ",".repeat(count as usize)),
    ]
}

fn main() {
    let inventory = inventory();
    let accelerators = pool(&inventory, Counted::AcceleratorsOrNodes);
    let nodes = pool(&inventory, Counted::Nodes);
    let single = segments(TOTAL, |index| index);
    let shared = segments(TOTAL / 4, |index| format!("{}-{}:{}", 4 * index, 4 * index + 3, index));
    let list = segments(TOTAL / 2, |index| 2 * index) + &format!(":0-{}", TOTAL / 4 - 1);
    let refused = [(TOTAL, faulty(TOTAL)), (SMALL, faulty(SMALL))];
    let texts = [
        ("all", "all".to_owned()),
        ("blocks of 8", format!("all:0-{}", NODES - 1)),
        ("4 processes each", format!("0-{}:0-{}", TOTAL / 4 - 1, TOTAL - 1)),
        ("a million segments", single.clone()),
    ];
    let map = |text: &str, resources| RankMap::parse(text, Some(resources)).expect("valid");
    let maps = texts.each_ref().map(|(name, text)| (name, map(text, TOTAL)));
    let by_node = map(&format!("all:0-{}", TOTAL - 1), NODES);
    let packed = Packed::new(0, TOTAL - 1, 2, 2).expect("valid");
    let chunks = Chunks::parse(&format!("0-{}", TOTAL - 1), 8).expect("valid");
    let table = apply(Rule::Map(&maps[0].1), &accelerators).expect("valid");
    let even: RankSet = (0..TOTAL).step_by(2).collect();
    let thirds: RankSet = (0..TOTAL).step_by(3).collect();

    let mut cases: Vec<(String, Work<'_>)> = Vec::new();
    macro_rules! case {
        ($name:expr, $work:expr) => {
            cases.push(($name.to_string(), Box::new(|| drop(black_box($work)))))
        };
    }
    case!(COLUMNS, write_columns());
    case!("parse/a million segments", parse(black_box(&single)).expect("valid"));
    case!("parse/a process for 4", parse(black_box(&shared)).expect("valid"));
    case!("check/a million segments", map(black_box(&single), TOTAL));
    case!("check/a process for 4", map(black_box(&shared), TOTAL));
    case!("check/one long list", map(black_box(&list), TOTAL));
    for (name, map) in &maps {
        case!(format!("assign/{name}"), apply(Rule::Map(black_box(map)), &accelerators).expect("valid"));
    }
    case!("assign/by node", apply(Rule::Map(black_box(&by_node)), &nodes).expect("valid"));
    case!("assign/packed, stride 2", apply(Rule::Packed(black_box(&packed)), &accelerators).expect("valid"));
    case!("assign/chunks of 8", apply(Rule::Chunks(black_box(&chunks)), &accelerators).expect("valid"));
    for (name, text) in &texts {
        case!(format!("place/{name}"), place(black_box(text), &accelerators).expect("valid"));
    }
    for (count, faulty) in &refused {
        for (name, text) in faulty {
            let at = if *count == SMALL { format!(", {SMALL}") } else { String::new() };
            case!(format!("refuse/{name}{at}"), place(black_box(text), &accelerators).expect_err("faulty"));
        }
    }
    case!("table/runs", table.runs(0..black_box(TOTAL), false));
    case!("table/ranks", ranks_of(black_box(&table), 0..TOTAL, &accelerators).expect("the same pool"));
    case!("set/union", black_box(&even).union(&thirds));
    case!("set/intersection", black_box(&even).intersection(&thirds));
    case!("set/difference", black_box(&even).difference(&thirds));

    match std::env::var(FRESH) {
        Ok(wanted) => run_once(&mut cases, &wanted),
        Err(_) => print(&measure(cases)),
    }
}

/// Run one case and print its nanoseconds.
fn run_once(cases: &mut [(String, Work<'_>)], wanted: &str) {
    let (_, work) = cases.iter_mut().find(|(name, _)| name == wanted).expect("a known case");
    let start = Instant::now();
    work();
    println!("{}", start.elapsed().as_nanos());
}

/// The shortest time of each selected case: repeated, and in a new process.
fn measure(cases: Vec<(String, Work<'_>)>) -> Vec<(String, Duration, Duration)> {
    let mut criterion = Criterion::default()
        .sample_size(20)
        .warm_up_time(Duration::from_secs(1))
        .measurement_time(Duration::from_secs(4))
        .configure_from_args();
    let mut measured = Vec::new();
    for (name, mut work) in cases {
        let mut shortest: Option<Duration> = None;
        criterion.bench_function(&name, |bench| {
            bench.iter_custom(|times| {
                let start = Instant::now();
                (0..times).for_each(|_| work());
                let took = start.elapsed();
                let each = took.div_f64(times as f64);
                shortest = Some(shortest.map_or(each, |known| known.min(each)));
                took
            });
        });
        if let Some(repeated) = shortest {
            let fresh = (0..3).map(|_| in_new_process(&name)).min().unwrap_or_default();
            measured.push((name, repeated, fresh));
        }
    }
    criterion.final_summary();
    measured
}

fn in_new_process(name: &str) -> Duration {
    let program = std::env::current_exe().expect("a path");
    let output = Command::new(program).env(FRESH, name).output().expect("it runs");
    Duration::from_nanos(String::from_utf8_lossy(&output.stdout).trim().parse().expect("nanoseconds"))
}

fn print(measured: &[(String, Duration, Duration)]) {
    let find = |wanted: &str| measured.iter().find(|(name, ..)| name == wanted);
    println!(
        "{:<32}{:>12}{:>12}{:>12}{:>12}{:>12}{:>8}",
        "", "repeated", "x columns", "fresh", "x columns", "x repeated", "growth"
    );
    for (name, repeated, fresh) in measured {
        let milliseconds = |time: &Duration| time.as_secs_f64() * 1e3;
        let ratio = |time: &Duration, to: Option<&Duration>| {
            to.map_or(String::new(), |to| format!("{:.2}", time.as_secs_f64() / to.as_secs_f64()))
        };
        let columns = find(COLUMNS);
        let growth = find(&format!("{name}, {SMALL}")).map_or(String::new(), |(_, small, _)| {
            let exponent = (repeated.as_secs_f64() / small.as_secs_f64()).ln() / f64::from(TOTAL / SMALL).ln();
            format!("{exponent:.2}")
        });
        println!(
            "{name:<32}{:>9.3} ms{:>12}{:>9.3} ms{:>12}{:>12}{growth:>8}",
            milliseconds(repeated),
            ratio(repeated, columns.map(|(_, repeated, _)| repeated)),
            milliseconds(fresh),
            ratio(fresh, columns.map(|(.., fresh)| fresh)),
            ratio(fresh, Some(repeated)),
        );
    }
}
