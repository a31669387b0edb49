//! Bounds of a schedule's time, to leave out the schedules that cannot be the best.

use crate::tune::problem::{Problem, Shape, members, subsets};

/// The time that a schedule of some tasks may take beside others.
#[derive(Clone, Copy, Debug)]
pub struct Limit {
    /// Seconds of all micro-batches.
    pub seconds: f64,
    /// Seconds of the first micro-batch: the period of the others is at least that of the tasks beside them.
    pub warmup: f64,
}

/// The limit where nothing fits.
pub const NOTHING: Limit = Limit { seconds: f64::NEG_INFINITY, warmup: f64::NEG_INFINITY };

/// For each set of tasks and number of units, how much time a schedule of them may take.
#[derive(Debug)]
pub struct Bounds {
    /// Seconds that the best schedule takes at most.
    best: f64,
    /// By set of tasks and units: the least time of all micro-batches, whatever the order of the tasks.
    least: Vec<Vec<f64>>,
    /// The same without the first micro-batch.
    others: Vec<Vec<f64>>,
    /// By task: those that run before or after it, in this order or through others.
    related: Vec<usize>,
    /// The share of a task's time that it adds to the warm-up of a pipeline.
    first: f64,
    /// Whether no two tasks share units.
    apart: bool,
    units: usize,
}

impl Bounds {
    /// The bounds of a problem for schedules of a shape.
    pub fn new(problem: &Problem, shape: Shape, found: f64) -> Self {
        let earlier = earlier(problem);
        let mut least = least(problem, shape);
        let share = problem.factors().1 / f64::from(problem.batches);
        let others = least.iter().map(|times| times.iter().map(|time| time * share).collect()).collect();
        if !matches!(shape, Shape::Collocated | Shape::Equal) {
            add_warmups(problem, &earlier, &mut least);
        }
        let best = known(problem, shape).min(found) * (1.0 + 1e-9);
        let first = problem.factors().0 / f64::from(problem.batches);
        Bounds {
            best,
            least,
            others,
            related: related(&earlier),
            first,
            apart: shape == Shape::Disaggregated,
            units: problem.units as usize,
        }
    }

    /// Seconds that a whole iteration may take if these tasks are a child of its root.
    pub fn at_root(&self, tasks: usize, all: usize) -> f64 {
        self.best - self.least[all & !tasks][self.units]
    }

    /// By units, the seconds that these tasks may take if others run beside them.
    ///
    /// Each of the others either runs beside them, on the other units; or shares their units only and adds its time to
    /// theirs; or shares all units and adds its time to both. Those beside them that wait for all of these tasks, or that all
    /// of these wait for, add their first micro-batch.
    pub fn beside(&self, tasks: usize, all: usize) -> Vec<Limit> {
        let others = all & !tasks;
        let mut left = vec![NOTHING; self.units + 1];
        let mut first = vec![0.0; self.units + 1];
        for set in subsets(others) {
            let sharing = others & !set;
            if sharing != 0 && self.apart {
                continue;
            }
            let follows = |task: &usize| (tasks | set) & !(1 << task) & !self.related[*task] == 0;
            first.fill(0.0);
            for task in members(set).filter(follows) {
                first.iter_mut().zip(&self.least[1 << task]).for_each(|(sum, time)| *sum += time * self.first);
            }
            for with_all in subsets(sharing).chain([0]) {
                let beside = self.best - self.least[with_all][self.units];
                let most = beside - self.least[sharing & !with_all][self.units];
                // Ascending numbers of units left over, for a descending number of units of these tasks.
                let times = self.least[set].iter().zip(&self.others[set]);
                for ((left, first), (time, others)) in left.iter_mut().rev().zip(&first).zip(times) {
                    if *time <= beside {
                        left.seconds = left.seconds.max(most - first);
                        left.warmup = left.warmup.max(beside - first - others);
                    }
                }
            }
        }
        left
    }
}

/// By task, the tasks that run before it, directly or through others.
fn earlier(problem: &Problem) -> Vec<usize> {
    let mut before: Vec<usize> = problem.tasks.iter().map(|task| task.after as usize).collect();
    for _ in 0..before.len() {
        for task in 0..before.len() {
            before[task] = members(before[task]).fold(before[task], |found, one| found | before[one]);
        }
    }
    before
}

/// By task, the tasks that run before or after it.
fn related(earlier: &[usize]) -> Vec<usize> {
    let later = |task: usize| {
        (0..earlier.len()).filter(|&one| earlier[one] >> task & 1 == 1).fold(0, |set, one| set | 1 << one)
    };
    earlier.iter().enumerate().map(|(task, before)| before | later(task)).collect()
}

/// Count the first micro-batch apart from the others: it passes the tasks of a set one after the other, as far as they wait
/// for each other, each at best on all units.
fn add_warmups(problem: &Problem, earlier: &[usize], least: &mut [Vec<f64>]) {
    let batches = f64::from(problem.batches);
    let (first, others) = problem.factors();
    let single: Vec<Vec<f64>> = (0..earlier.len()).map(|task| least[1 << task].clone()).collect();
    let mut longest = vec![vec![0.0; problem.units as usize + 1]];
    for (set, least) in least.iter_mut().enumerate().skip(1) {
        let mut times = vec![0.0_f64; least.len()];
        for task in members(set) {
            for (time, (before, own)) in times.iter_mut().zip(longest[set & earlier[task]].iter().zip(&single[task])) {
                *time = time.max(before + own);
            }
        }
        for (least, time) in least.iter_mut().zip(&times).filter(|(least, _)| least.is_finite()) {
            *least = (*least * others + time * first) / batches;
        }
        longest.push(times);
    }
}

/// The least time of all micro-batches of each set on up to each number of units, whatever the order.
fn least(problem: &Problem, shape: Shape) -> Vec<Vec<f64>> {
    let units = problem.units as usize;
    let mut least = vec![vec![0.0; units + 1]];
    for set in 1..=problem.all() {
        let first = set & set.wrapping_neg();
        if set == first {
            least.push(fastest(problem, set.trailing_zeros() as usize));
            continue;
        }
        let mut times = vec![f64::INFINITY; units + 1];
        match shape {
            // Without turns, any way to split a set leads to the same pipeline.
            Shape::Disaggregated => beside(&least[first], &least[set & !first], &mut times),
            Shape::Hybrid => {
                for one in subsets(set).filter(|one| one & first != 0 && *one != set) {
                    let (one, other) = (&least[one], &least[set & !one]);
                    beside(one, other, &mut times);
                    times.iter_mut().zip(one.iter().zip(other)).for_each(|(time, (a, b))| *time = time.min(a + b));
                }
            }
            Shape::Collocated | Shape::Equal => times.fill(0.0),
        }
        least.push(times);
    }
    least
}

/// Lower the times to those of two sets beside each other, by units of both together.
fn beside(one: &[f64], other: &[f64], times: &mut [f64]) {
    // The first falls with its units, the second rises: the best split is where they meet, which moves up with the units.
    let mut meet = 0;
    for (size, time) in times.iter_mut().enumerate() {
        while meet < size && one[meet] > other[size - meet] {
            meet += 1;
        }
        let slower = |split: usize| one[split].max(other[size - split]);
        *time = time.min(slower(meet)).min(slower(meet.saturating_sub(1)));
    }
}

/// The first number up to `end` for which the condition fails, `end` if none; it holds for all below.
fn partition(end: usize, holds: impl Fn(usize) -> bool) -> usize {
    let (mut low, mut high) = (0, end);
    while low < high {
        let middle = low.midpoint(high);
        if holds(middle) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    low
}

/// The least time of a task on up to each number of units.
fn fastest(problem: &Problem, task: usize) -> Vec<f64> {
    let mut times = vec![f64::INFINITY; problem.units as usize + 1];
    for choice in problem.tasks[task].choices.iter().filter(|choice| problem.holds(choice.memory)) {
        if let Some(time) = times.get_mut(choice.units as usize) {
            *time = choice.seconds;
        }
    }
    for size in 1..times.len() {
        times[size] = times[size].min(times[size - 1]);
    }
    times
}

/// Seconds of some schedule of the shape; infinite if none is found.
fn known(problem: &Problem, shape: Shape) -> f64 {
    let fastest: Vec<_> = (0..problem.tasks.len()).map(|task| fastest(problem, task)).collect();
    let all = problem.all();
    let extra: f64 = problem.transfers.iter().map(|one| one.apart.max(one.together)).sum();
    let switching: f64 = problem.capacity.map_or(0.0, |_| problem.tasks.iter().map(|task| task.switch).sum());
    let found = match shape {
        Shape::Disaggregated => pipeline(problem, &of(&fastest, all)),
        Shape::Collocated | Shape::Equal => fastest.iter().map(|times| times[problem.units as usize]).sum(),
        // In a pipeline, components are switched for every micro-batch.
        Shape::Hybrid => {
            turns(problem, &fastest).min(blocks(problem, &fastest) + switching * f64::from(problem.batches))
        }
    };
    found + extra + switching
}

/// Seconds of a good pipeline of single tasks: with a period near the least, and the units left over where they shorten the
/// warm-up most.
fn pipeline(problem: &Problem, parts: &[&[f64]]) -> f64 {
    let needed = |limit: f64, part: &[f64]| part.partition_point(|&time| time > limit);
    let units = problem.units as usize;
    let fits = |limit: f64| parts.iter().map(|part| needed(limit, part)).sum::<usize>() <= units;
    let mut limits: Vec<f64> = parts.iter().flat_map(|part| part.iter().copied()).collect();
    limits.retain(|limit| limit.is_finite());
    limits.sort_by(f64::total_cmp);
    let first = partition(limits.len(), |index| !fits(limits[index]));
    let Some(&least) = limits.get(first) else { return f64::INFINITY };
    let (warmup, period) = problem.factors();
    let seconds = |factor: &f64| {
        let mut sizes: Vec<(&[f64], usize)> =
            parts.iter().map(|part| (*part, needed(least * factor, part).min(units))).collect();
        let spare = units.saturating_sub(sizes.iter().map(|(_, size)| size).sum());
        for _ in 0..spare {
            let gain = |&(part, size): &(&[f64], usize)| part[size] - part[(size + 1).min(units)];
            if let Some(most) = sizes.iter_mut().max_by(|one, other| gain(one).total_cmp(&gain(other))) {
                most.1 = (most.1 + 1).min(units);
            }
        }
        let times = sizes.iter().map(|&(part, size)| part[size]);
        (period * times.clone().fold(0.0, f64::max) + warmup * times.sum::<f64>()) / f64::from(problem.batches)
    };
    SLOWER.iter().map(seconds).fold(f64::INFINITY, f64::min)
}

/// Periods to try, in multiples of the least.
const SLOWER: [f64; 6] = [1.0, 1.01, 1.03, 1.1, 1.5, 4.0];

/// Seconds of the best order of turns, each of a single task or a pipeline of them, with at least one of each kind.
fn turns(problem: &Problem, fastest: &[Vec<f64>]) -> f64 {
    let all = problem.all();
    let mut pipes = vec![None; all + 1];
    // By set that waits for no other task: without a pipeline, and with one.
    let mut best = vec![[f64::INFINITY; 2]; all + 1];
    best[0][0] = 0.0;
    let complete = |set: usize| problem.before(set) & !set == 0;
    for set in (1..=all).filter(|&set| complete(set)) {
        for turn in subsets(set).filter(|turn| complete(set & !turn)) {
            let before = best[set & !turn];
            if turn.is_power_of_two() {
                let seconds = fastest[turn.trailing_zeros() as usize][problem.units as usize];
                for (best, before) in best[set].iter_mut().zip(before) {
                    *best = best.min(before + seconds);
                }
            } else if turn != all {
                let seconds = *pipes[turn].get_or_insert_with(|| pipeline(problem, &of(fastest, turn)));
                best[set][1] = best[set][1].min(before[0].min(before[1]) + seconds);
            }
        }
    }
    best[all][1]
}

/// The times of some tasks.
fn of(fastest: &[Vec<f64>], set: usize) -> Vec<&[f64]> {
    members(set).map(|task| fastest[task].as_slice()).collect()
}

/// Tasks in turn, and the sum of their times.
type Block = (usize, Vec<f64>);

/// Seconds of a good pipeline with tasks in turn: from single tasks, join the two blocks that cost least, again and again.
fn blocks(problem: &Problem, fastest: &[Vec<f64>]) -> f64 {
    let mut blocks: Vec<Block> = fastest.iter().enumerate().map(|(task, times)| (1 << task, times.clone())).collect();
    let mut best = f64::INFINITY;
    while blocks.len() > 2 {
        let mut least: Option<(f64, Vec<Block>)> = None;
        for (one, other) in (0..blocks.len()).flat_map(|one| (0..one).map(move |other| (one, other))) {
            let mut joined = blocks.clone();
            let (set, times) = joined.remove(one);
            joined[other].0 |= set;
            joined[other].1.iter_mut().zip(times).for_each(|(sum, time)| *sum += time);
            if !is_ordered(problem, &joined) {
                continue;
            }
            let seconds = pipeline(problem, &joined.iter().map(|(_, times)| times.as_slice()).collect::<Vec<_>>());
            if least.as_ref().is_none_or(|(known, _)| seconds < *known) {
                least = Some((seconds, joined));
            }
        }
        let Some((seconds, joined)) = least else { break };
        best = best.min(seconds);
        blocks = joined;
    }
    best
}

/// Whether the blocks can run in some order.
fn is_ordered(problem: &Problem, blocks: &[Block]) -> bool {
    let mut left: Vec<usize> = blocks.iter().map(|(set, _)| *set).collect();
    while !left.is_empty() {
        let waiting = left.iter().fold(0, |found, set| found | set);
        let free = left.iter().position(|&set| problem.before(set) & waiting & !set == 0);
        let Some(free) = free else { return false };
        left.swap_remove(free);
    }
    true
}
