//! The search for the lowest-cost schedule: 8 components on 128 units with three in parallel, 4 on 4,096 units.

use criterion::{Criterion, criterion_group, criterion_main};
use rankplan_core::tune::solve;
use rankplan_core::tune_problem::{Choice, Problem, Shape, Task};

/// Times that fall with the number of accelerators: `fixed + shared / n`.
fn problem(units: u32, batches: u32, times: &[(f64, f64)], after: &[u32]) -> Problem {
    let choices = |&(fixed, shared): &(f64, f64)| -> Vec<Choice> {
        let choice = |units| Choice { units, seconds: fixed + shared / f64::from(units), memory: 0.0 };
        (1..=units).map(choice).collect()
    };
    let task = |(time, &after)| Task { choices: choices(time), switch: 0.0, after };
    let tasks = times.iter().zip(after).map(task).collect();
    Problem { tasks, units, batches, stale: false, capacity: None, transfers: Vec::new() }
}

fn tune(criterion: &mut Criterion) {
    let times = [
        (3.0, 900.0),
        (1.0, 400.0),
        (2.0, 700.0),
        (2.0, 650.0),
        (1.0, 500.0),
        (4.0, 1500.0),
        (1.0, 200.0),
        (9.0, 2000.0),
    ];
    // Two in a row, three in parallel, three in a row.
    let after = [0, 0b1, 0b10, 0b10, 0b10, 0b1_1100, 0b10_0000, 0b100_0000];
    let wide = problem(128, 512, &times, &after);
    let large =
        problem(4096, 512, &[(4.0, 30000.0), (1.0, 1300.0), (2.0, 9000.0), (9.0, 12900.0)], &[0, 0b1, 0b10, 0b100]);
    for (name, problem) in [("8 components, 128 units", wide), ("4 components, 4096 units", large)] {
        criterion.bench_function(name, |bencher| {
            bencher
                .iter(|| [Shape::Collocated, Shape::Disaggregated, Shape::Hybrid].map(|shape| solve(&problem, shape)));
        });
    }
}

criterion_group!(benches, tune);
criterion_main!(benches);
