//! Bounds of a schedule's time, to leave out the schedules that cannot be the best.

use crate::tune::problem::{Problem, SAME, Shape, members, subsets};

/// Seconds that a schedule of some tasks may take beside others.
#[derive(Clone, Copy, Debug)]
struct Limit {
    /// Of all micro-batches.
    seconds: f64,
    /// Of the first micro-batch: the period of the others is at least that of the tasks beside them.
    warmup: f64,
}

/// The limits of some tasks, one for each way in which the others can run; none is below another in both numbers.
#[derive(Clone, Debug, Default)]
pub struct Limits(Vec<Limit>);

impl Limits {
    fn add(&mut self, limit: Limit) {
        let below = |one: &Limit, other: &Limit| one.seconds <= other.seconds && one.warmup <= other.warmup;
        if !self.0.iter().any(|other| below(&limit, other)) {
            self.0.retain(|other| !below(other, &limit));
            self.0.push(limit);
        }
    }

    /// The most seconds that any of them allows.
    pub fn most(&self) -> f64 {
        self.0.iter().map(|limit| limit.seconds).fold(f64::NEG_INFINITY, f64::max)
    }

    /// Whether one of them allows these seconds, and these of the first micro-batch.
    pub fn allow(&self, seconds: f64, warmup: f64) -> bool {
        self.0.iter().any(|limit| seconds <= limit.seconds && warmup <= limit.warmup)
    }
}

/// For each set of tasks and number of units, how much time a schedule of them may take.
#[derive(Debug)]
pub struct Bounds {
    /// Seconds that the best schedule takes at most.
    best: f64,
    /// By set of tasks and units: the least time of all micro-batches, whatever the order of the tasks.
    least: Vec<Vec<f64>>,
    /// The first micro-batch's part of it: it passes the tasks one after the other, as far as they wait for each other.
    first: Vec<Vec<f64>>,
    /// The part of the other micro-batches.
    others: Vec<Vec<f64>>,
    /// By task: those that run before it, directly or through others.
    earlier: Vec<usize>,
    /// By task: those that run before or after it.
    related: Vec<usize>,
    /// Whether no two tasks share units.
    apart: bool,
    units: usize,
}

impl Bounds {
    /// The bounds of a problem for schedules of a shape.
    pub fn new(problem: &Problem, shape: Shape, found: f64) -> Self {
        let earlier = earlier(problem);
        let mut least = least(problem, shape);
        let (mut first, mut others) = (Vec::new(), Vec::new());
        if !matches!(shape, Shape::Collocated | Shape::Equal) {
            let (warmup, period) = problem.factors();
            let batches = f64::from(problem.batches);
            first = scaled(&longest(problem, &earlier, &least), warmup / batches);
            others = scaled(&least, period / batches);
            let parts = first.iter().zip(&others);
            least = parts
                .map(|(first, others)| first.iter().zip(others).map(|(one, other)| one + other).collect())
                .collect();
        }
        let best = known(problem, shape).min(found) * (1.0 + 2.0 * SAME);
        let related = related(&earlier);
        let (apart, units) = (shape == Shape::Disaggregated, problem.units as usize);
        Bounds { best, least, first, others, earlier, related, apart, units }
    }

    /// Seconds that a whole iteration may take if these tasks are a child of its root.
    pub fn at_root(&self, tasks: usize, all: usize) -> f64 {
        self.best - self.least[all & !tasks][self.units]
    }

    /// By units, the limits of these tasks if others run beside them.
    ///
    /// Each of the others either runs beside them, on the other units; or shares their units only and adds its time to
    /// theirs; or shares all units and adds its time to both. Those beside them that wait for all of these tasks, or that all
    /// of these wait for, add their first micro-batch.
    pub fn beside(&self, tasks: usize, all: usize) -> Vec<Limits> {
        let others = all & !tasks;
        let mut left = vec![Limits::default(); self.units + 1];
        for set in subsets(others) {
            let sharing = others & !set;
            if sharing != 0 && self.apart {
                continue;
            }
            let first = self.followers(tasks, set);
            for with_all in subsets(sharing).chain([0]) {
                let beside = self.best - self.least[with_all][self.units];
                let with_tasks = sharing & !with_all;
                let mut sums = [f64::INFINITY; 2];
                // Descending numbers of units of these tasks, for an ascending number of units left over.
                for (units, left) in left.iter_mut().enumerate().rev() {
                    let rest = self.units - units;
                    if self.least[set][rest] > beside {
                        continue;
                    }
                    // A single task beside them is also beside those that share their units, on what these leave over. Of
                    // several, some may be beside these tasks only.
                    let single = set.is_power_of_two();
                    let most = if single { units } else { self.units };
                    let all = self.least[with_tasks][most] + first[rest];
                    let warmup = self.first[with_tasks][most] + first[rest] + self.others[set][rest];
                    sums = if single { [sums[0].min(all), sums[1].min(warmup)] } else { [all, warmup] };
                    left.add(Limit { seconds: beside - sums[0], warmup: beside - sums[1] });
                }
            }
        }
        left
    }

    /// By units that a set beside some tasks has, the seconds that it adds to their warm-up: those of its tasks that run before
    /// or after all others.
    ///
    /// The tasks before and those after share no units: a `then` of both would have to run before and after the others. Tasks
    /// on one side may share units unless no two tasks do.
    fn followers(&self, tasks: usize, set: usize) -> Vec<f64> {
        let follows = |task: &usize| (tasks | set) & !(1 << task) & !self.related[*task] == 0;
        let mut times: Vec<Vec<f64>> = Vec::new();
        let mut sides: [Option<usize>; 2] = [None; 2];
        for task in members(set).filter(follows) {
            let side = &mut sides[usize::from(self.earlier[task] & tasks != 0)];
            match *side {
                Some(known) if !self.apart => {
                    times[known].iter_mut().zip(&self.first[1 << task]).for_each(|(sum, time)| *sum += time);
                }
                _ => {
                    *side = Some(times.len());
                    times.push(self.first[1 << task].clone());
                }
            }
        }
        divided(&times, self.units)
    }
}

/// A number of units and a time.
type Corner = (usize, f64);

/// At most the least sum of some times that never rise, by the units that they divide: the sum of their convex hulls, which
/// is exact if the times are convex. Each hull is followed where it falls fastest.
fn divided(times: &[Vec<f64>], units: usize) -> Vec<f64> {
    let mut sums = vec![f64::INFINITY; units + 1];
    let hulls: Vec<Vec<Corner>> = times.iter().map(|times| hull(times)).collect();
    if hulls.iter().any(Vec::is_empty) {
        return sums;
    }
    let slope = |pair: &[Corner]| (pair[1].1 - pair[0].1) / (pair[1].0 - pair[0].0) as f64;
    let mut edges: Vec<(f64, usize)> = Vec::new();
    for (index, hull) in hulls.iter().enumerate() {
        edges.extend(hull.windows(2).map(|pair| (slope(pair), index)));
    }
    edges.sort_by(|one, other| one.0.total_cmp(&other.0)); // keeps the order of the edges of a hull, which rise
    let mut at = vec![0; hulls.len()];
    // Added up anew at each corner, so that rounding errors do not add up.
    let here = |at: &[usize]| -> Corner {
        let corners = hulls.iter().zip(at).map(|(hull, &corner)| hull[corner]);
        corners.fold((0, 0.0), |sum, corner| (sum.0 + corner.0, sum.1 + corner.1))
    };
    let (mut from, mut sum) = here(&at);
    for (slope, index) in edges {
        for (size, time) in
            sums.iter_mut().enumerate().skip(from).take(hulls[index][at[index] + 1].0 - hulls[index][at[index]].0)
        {
            *time = sum + slope * (size - from) as f64;
        }
        at[index] += 1;
        (from, sum) = here(&at);
    }
    sums.iter_mut().skip(from).for_each(|time| *time = sum);
    sums
}

/// The corners of the convex hull below some times, by ascending units, from the first that is finite.
fn hull(times: &[f64]) -> Vec<Corner> {
    let mut corners: Vec<Corner> = Vec::new();
    for corner in times.iter().copied().enumerate().filter(|(_, time)| time.is_finite()) {
        let above = |one: Corner, two: Corner| {
            let [run, whole] = [two.0 - one.0, corner.0 - one.0].map(|units| units as f64);
            (two.1 - one.1) * whole >= (corner.1 - one.1) * run
        };
        while let [.., one, two] = corners[..]
            && above(one, two)
        {
            corners.pop();
        }
        corners.push(corner);
    }
    corners
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

/// Times multiplied by a share, which may be 0; infinite ones stay infinite.
fn scaled(times: &[Vec<f64>], share: f64) -> Vec<Vec<f64>> {
    let scaled = |&time: &f64| if time.is_finite() { time * share } else { time };
    times.iter().map(|times| times.iter().map(scaled).collect()).collect()
}

/// By set and units, the longest chain of tasks that wait for each other, each on all units.
fn longest(problem: &Problem, earlier: &[usize], single: &[Vec<f64>]) -> Vec<Vec<f64>> {
    let mut longest = vec![vec![0.0; problem.units as usize + 1]];
    for set in 1..=problem.all() {
        let mut times = vec![0.0_f64; problem.units as usize + 1];
        for task in members(set) {
            let chain = longest[set & earlier[task]].iter().zip(&single[1 << task]);
            times.iter_mut().zip(chain).for_each(|(time, (before, own))| *time = time.max(before + own));
        }
        longest.push(times);
    }
    longest
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
