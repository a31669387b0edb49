//! The search for the lowest-cost schedule: 8 components on 128 units, three of them in parallel, and 4 in a row on 4,096
//! units, each for the best collocated, disaggregated and hybrid schedule.
//!
//! `cargo bench -p rankplan-core --bench tune` prints the shortest processor time of several runs, the target and their ratio, for
//! several numbers of micro-batches: with few of them, the first micro-batch counts as much as the period. RLinf's own search
//! (`AutoPlacementWorker`) has no times here: `tests/golden` records its answers, and `tests/tuning/test_rlinf_times.py` counts
//! those that are not the best.

use std::hint::black_box;
use std::time::{Duration, Instant};

use rankplan_core::tune::problem::{Choice, Problem, Shape, Task};
use rankplan_core::tune::solve;

/// Seconds of `fixed + shared / n` on `n` units, and the components before, as a bit set.
type Component = (f64, f64, u32);

/// Two in a row, three in parallel, three in a row.
const WIDE: [Component; 8] = [
    (3.0, 900.0, 0),
    (1.0, 400.0, 0b1),
    (2.0, 700.0, 0b10),
    (2.0, 650.0, 0b10),
    (1.0, 500.0, 0b10),
    (4.0, 1500.0, 0b1_1100),
    (1.0, 200.0, 0b10_0000),
    (9.0, 2000.0, 0b100_0000),
];
/// A rollout, a reward, inference, an actor.
const CHAIN: [Component; 4] = [(4.0, 30_000.0, 0), (1.0, 1300.0, 0b1), (2.0, 9000.0, 0b10), (9.0, 12_900.0, 0b100)];
const SHAPES: [Shape; 3] = [Shape::Collocated, Shape::Disaggregated, Shape::Hybrid];
const RUNS: usize = 3;

fn main() {
    println!("{:<34}{:>12}{:>12}{:>12}{:>12}", "", "batches", "shortest", "target", "ratio");
    for (name, components, units, target) in
        [("8 components, 128 units", &WIDE[..], 128, 50), ("4 components, 4,096 units", &CHAIN[..], 4096, 500)]
    {
        for batches in [512, 64, 32, 16, 8, 6, 4, 3, 2, 1] {
            let problem = problem(units, batches, components);
            let time = (0..RUNS).map(|_| once(&problem)).min().unwrap_or_default();
            let taken = time.as_secs_f64() * 1e3;
            println!("{name:<34}{batches:>12}{taken:>9.1} ms{target:>9} ms{:>12.2}", taken / f64::from(target));
        }
    }
}

fn once(problem: &Problem) -> Duration {
    let (start, before) = (Instant::now(), on_processor());
    black_box(SHAPES.map(|shape| solve(black_box(problem), shape)));
    let elapsed = start.elapsed();
    before.zip(on_processor()).map_or(elapsed, |(before, after)| after - before)
}

/// How long this thread has run, which other work on the machine does not prolong; only Linux tells.
fn on_processor() -> Option<Duration> {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    text.split_whitespace().next()?.parse().ok().map(Duration::from_nanos)
}

fn problem(units: u32, batches: u32, components: &[Component]) -> Problem {
    let task = |&(fixed, shared, after): &Component| {
        let choice = |units| Choice { units, seconds: fixed + shared / f64::from(units), memory: 0.0 };
        Task { choices: (1..=units).map(choice).collect(), switch: 0.0, after }
    };
    let tasks = components.iter().map(task).collect();
    Problem { tasks, units, batches, stale: false, capacity: None, transfers: Vec::new() }
}
