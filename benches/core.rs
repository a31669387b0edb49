//! The core alone: parse, check, assign and the algebra of sets on 131,072 nodes x 8, beside merely writing columns of the
//! same size.
//!
//! `cargo bench -p rankplan-core`; a name, e.g. `-- assign/all`, runs one of them. At the end stands how many times longer
//! each took than the columns.

#![allow(clippy::expect_used, reason = "the inputs are fixed and valid")]

use std::hint::black_box;
use std::time::{Duration, Instant};

use criterion::measurement::WallTime;
use criterion::{BenchmarkGroup, Criterion, Throughput};
use rankplan_core::pool::Counted;
use rankplan_core::syntax::parse;
use rankplan_core::{Inventory, NodeSpec, Packed, Pool, RankMap, RankSet, Rule, Selection, apply, place};

const NODES: u32 = 131_072;
const EACH: u32 = 8;
const TOTAL: u32 = NODES * EACH;

fn inventory() -> Inventory {
    let ids = (0..EACH).map(|index| index.to_string()).collect();
    let spec = NodeSpec { accelerator_type: "NV_GPU".into(), accelerator_ids: ids };
    Inventory::new(vec![(RankSet::first_ranks(NODES), spec)]).expect("a uniform inventory")
}

fn pool(inventory: &Inventory, counted: Counted) -> Pool {
    let selection = Selection { label: "cluster".into(), nodes: RankSet::first_ranks(NODES), counted };
    Pool::new(inventory, &[selection]).expect("all nodes")
}

/// What any implementation has to do: 16 bytes a row and 2 a device. Here as elsewhere the memory was used before; where it
/// was not, the system takes longer to hand it out than all of this takes.
fn write_columns() -> ([Vec<u32>; 4], Vec<u16>) {
    let words = [
        (0..TOTAL).map(|rank| rank / EACH).collect(),
        (0..TOTAL).map(|rank| rank / EACH).collect(),
        (0..TOTAL).map(|rank| rank % EACH).collect(),
        (0..=TOTAL).collect(),
    ];
    (words, (0..TOTAL).map(|rank| (rank % EACH) as u16).collect())
}

fn segments(count: u32, segment: impl Fn(u32) -> String) -> String {
    (0..count).map(segment).collect::<Vec<_>>().join(",")
}

/// The benchmarks of one group, and the shortest time of each, for the ratios at the end.
struct Cases<'a, 'b> {
    group: BenchmarkGroup<'a, WallTime>,
    shortest: &'b mut Vec<(String, Duration)>,
    name: &'static str,
}

impl<'a, 'b> Cases<'a, 'b> {
    fn new(criterion: &'a mut Criterion, name: &'static str, shortest: &'b mut Vec<(String, Duration)>) -> Self {
        let mut group = criterion.benchmark_group(name);
        group.measurement_time(Duration::from_secs(4)).throughput(Throughput::Elements(TOTAL.into()));
        Cases { group, shortest, name }
    }

    fn case<T>(&mut self, name: &str, mut work: impl FnMut() -> T) {
        let mut shortest: Option<Duration> = None;
        self.group.bench_function(name, |bench| {
            bench.iter_custom(|times| {
                let start = Instant::now();
                (0..times).for_each(|_| drop(black_box(work())));
                let took = start.elapsed();
                let each = took.div_f64(times as f64);
                shortest = Some(shortest.map_or(each, |known| known.min(each)));
                took
            });
        });
        self.shortest.extend(shortest.map(|each| (format!("{}/{name}", self.name), each)));
    }
}

fn main() {
    let mut criterion = Criterion::default().sample_size(20).warm_up_time(Duration::from_secs(1)).configure_from_args();
    let inventory = inventory();
    let accelerators = pool(&inventory, Counted::AcceleratorsOrNodes);
    let nodes = pool(&inventory, Counted::Nodes);
    let single = segments(TOTAL, |index| index.to_string());
    let shared = segments(TOTAL / 4, |index| format!("{}-{}:{}", 4 * index, 4 * index + 3, index));
    let list = segments(TOTAL / 2, |index| (2 * index).to_string()) + &format!(":0-{}", TOTAL / 4 - 1);
    let mut shortest = Vec::new();

    let mut cases = Cases::new(&mut criterion, "parse", &mut shortest);
    for (name, text) in [("a million segments", &single), ("a process for 4", &shared)] {
        cases.group.throughput(Throughput::Bytes(text.len() as u64));
        cases.case(name, || parse(black_box(text)).expect("valid"));
    }
    drop(cases);

    // Reading is in it: parts are checked where they are read.
    let mut cases = Cases::new(&mut criterion, "check", &mut shortest);
    for (name, text) in [("a million segments", &single), ("a process for 4", &shared), ("one long list", &list)] {
        cases.case(name, || RankMap::parse(black_box(text), Some(TOTAL)).expect("valid"));
    }
    drop(cases);

    let mut cases = Cases::new(&mut criterion, "assign", &mut shortest);
    cases.case("columns only", write_columns);
    let texts = [
        ("all", "all".to_owned()),
        ("blocks of 8", format!("all:0-{}", NODES - 1)),
        ("4 processes each", format!("0-{}:0-{}", TOTAL / 4 - 1, TOTAL - 1)),
        ("a million segments", single.clone()),
    ];
    for (name, text) in &texts {
        let map = RankMap::parse(text, Some(TOTAL)).expect("valid");
        cases.case(name, || apply(Rule::Map(black_box(&map)), &accelerators).expect("valid"));
    }
    let by_node = RankMap::parse(&format!("all:0-{}", TOTAL - 1), Some(NODES)).expect("valid");
    cases.case("by node", || apply(Rule::Map(black_box(&by_node)), &nodes).expect("valid"));
    let packed = Packed::new(0, TOTAL - 1, 2, 2).expect("valid");
    cases.case("packed, stride 2", || apply(Rule::Packed(&packed), &accelerators).expect("valid"));
    drop(cases);

    let mut cases = Cases::new(&mut criterion, "place", &mut shortest);
    for (name, text) in &texts {
        cases.case(name, || place(black_box(text), &accelerators).expect("valid"));
    }
    drop(cases);

    let mut cases = Cases::new(&mut criterion, "refuse", &mut shortest);
    let faulty = [
        ("descending", segments(TOTAL, |index| (TOTAL - 1 - index).to_string())),
        ("each twice", segments(TOTAL, |index| (index / 2).to_string())),
        (
            "no multiple",
            segments(TOTAL / 4, |index| format!("{0}-{1}:{0}-{2}", index * 3, index * 3 + 2, index * 3 + 1)),
        ),
        ("commas", ",".repeat(TOTAL as usize)),
    ];
    for (name, text) in &faulty {
        cases.case(name, || place(black_box(text), &accelerators).expect_err("faulty"));
    }
    drop(cases);

    let mut cases = Cases::new(&mut criterion, "set", &mut shortest);
    let even: RankSet = (0..TOTAL).step_by(2).collect();
    let thirds: RankSet = (0..TOTAL).step_by(3).collect();
    cases.case("union", || black_box(&even).union(&thirds));
    cases.case("intersection", || black_box(&even).intersection(&thirds));
    cases.case("difference", || black_box(&even).difference(&thirds));
    drop(cases);

    criterion.final_summary();
    let columns = shortest.iter().find(|(name, _)| name == "assign/columns only").map(|(_, each)| each.as_secs_f64());
    for (name, each) in &shortest {
        let each = each.as_secs_f64();
        let ratio = columns.map_or(String::new(), |columns| format!("{:>8.2} x columns", each / columns));
        println!("{name:<28}{:>9.2} ms{ratio}", each * 1e3);
    }
}
