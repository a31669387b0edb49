//! Components in turn on the same accelerators, in a pipeline or at the root of a schedule.

use crate::tune::bounds::Limits;
use crate::tune::front::{Front, MOST_READY, Point, Table, add, beaten};
use crate::tune::problem::{Problem, SAME, Schedule, Tree, fewest, subsets};
use crate::tune::steps::{Step, Steps};

/// A set of tasks as it takes its turn: a child, or the turns of several.
#[derive(Clone, Copy)]
struct Turn<'a> {
    point: &'a Point,
    several: bool,
}

impl Turn<'_> {
    /// The cost of the turn, loaded for it and unloaded after it, if children switch.
    fn cost(self, switching: bool) -> Point {
        if !switching || self.several {
            return *self.point;
        }
        let Point { warmup, period, switch, .. } = *self.point;
        Point { warmup: warmup + switch, period: period + switch, switch: 0.0, ..*self.point }
    }
}

/// The cost of two turns; `None` if they do not fit into memory together.
fn both(problem: &Problem, first: Turn<'_>, rest: Turn<'_>, switching: bool, together: f64) -> Option<Point> {
    let [one, other] = [first, rest].map(|turn| turn.cost(switching));
    let memory = if switching { one.memory.max(other.memory) } else { one.memory + other.memory };
    let point = Point {
        warmup: one.warmup + other.warmup,
        period: one.period + other.period,
        memory,
        switch: one.switch + other.switch,
        once: one.once + other.once + together,
        ready: [0.0; MOST_READY],
        mixed: one.mixed || other.mixed,
        step: 0,
    };
    problem.holds(memory).then_some(point)
}

/// Whether children stay in memory, or switch; without a limit of memory all stay.
fn modes(problem: &Problem) -> &'static [bool] {
    if problem.capacity.is_some() { &[false, true] } else { &[false] }
}

/// The splits of a set into a first turn and the rest, which the first does not depend on.
fn splits(problem: &Problem, set: usize) -> impl Iterator<Item = (usize, usize)> {
    let split = move |first: usize| (first, set & !first);
    subsets(set).map(split).filter(|&(first, rest)| rest != 0 && problem.before(first) & rest == 0)
}

/// Turns within a pipeline, by set of tasks.
pub struct InPipeline {
    parts: Vec<Table>,
    /// Two or more turns, by mode.
    turns: [Vec<Table>; 2],
}

impl InPipeline {
    /// No turns yet of this many sets.
    pub fn new(sets: usize) -> Self {
        let tables = vec![Table::default(); sets];
        InPipeline { parts: tables.clone(), turns: [tables.clone(), tables] }
    }

    /// Record the ways to run a set as one child, and return those to run it in turns. `limits` are by units.
    pub fn visit(
        &mut self,
        problem: &Problem,
        set: usize,
        [leaf, pipe]: [&Table; 2],
        limits: &[Limits],
        steps: &mut Steps,
    ) -> Table {
        let mut part = leaf.clone();
        part.absorb(pipe.clone(), 0);
        self.parts[set] = part;
        let mut found = Table::new(problem.units);
        for &switching in modes(problem) {
            let mut table = Table::new(problem.units);
            for (first, rest) in splits(problem, set) {
                let together = problem.transfers_between(first, rest, false);
                for (several, other) in [(false, &self.parts[rest]), (true, &self.turns[usize::from(switching)][rest])]
                {
                    let (warmup, period) = problem.factors();
                    let fits = |units: u32, one: &Point, other: &Point| {
                        warmup * one.warmup + period * (one.period + other.period) <= limits[units as usize].most()
                    };
                    pairs(&self.parts[first], other, fits, |units, one, other| {
                        let turns = [(one, false), (other, several)].map(|(point, several)| Turn { point, several });
                        let Some(mut point) = both(problem, turns[0], turns[1], switching, together) else { return };
                        point.mixed = true;
                        let seconds = warmup * point.warmup + period * point.period + point.once;
                        let fits = limits[units as usize].allow(seconds, warmup * point.warmup);
                        if fits && !beaten(table.at(units), &point, 0) {
                            point.step = steps.push(Step::Turn { first: one.step, rest: other.step, switching });
                            add(table.at(units), point, 0);
                        }
                    });
                }
            }
            table.settle(0);
            found.absorb(table.clone(), 0);
            self.turns[usize::from(switching)][set] = table;
        }
        found
    }
}

/// Visit pairs of points of two tables with the larger number of units, leaving out points that fewer units beat, and those
/// that do not fit. A point does not fit if one with a shorter period does not fit either.
fn pairs(
    one: &Table,
    other: &Table,
    fits: impl Fn(u32, &Point, &Point) -> bool,
    mut visit: impl FnMut(u32, &Point, &Point),
) {
    let (mut ones, mut others) = (one.iter().peekable(), other.iter().peekable());
    let (mut below_one, mut below_other) = (Front::new(), Front::new());
    loop {
        let sizes = [ones.peek().map(|(size, _)| *size), others.peek().map(|(size, _)| *size)];
        let Some(units) = sizes.into_iter().flatten().min() else { return };
        let new_one = ones.next_if(|(size, _)| *size == units).map_or(&[][..], |(_, front)| front);
        let new_other = others.next_if(|(size, _)| *size == units).map_or(&[][..], |(_, front)| front);
        for first in new_one {
            for second in [&below_other[..], new_other] {
                second.iter().take_while(|one| fits(units, first, one)).for_each(|one| visit(units, first, one));
            }
        }
        for second in new_other {
            below_one.iter().take_while(|one| fits(units, second, one)).for_each(|one| visit(units, one, second));
        }
        new_one.iter().for_each(|&point| add(&mut below_one, point, 0));
        new_other.iter().for_each(|&point| add(&mut below_other, point, 0));
    }
}

/// A way to run some tasks for a whole iteration, and its units. The period is the seconds of the iteration.
pub type Whole = (Point, u32);

/// Whether a way is as good as another, in time and memory; with equal costs, fewer units are better.
fn as_good((one, fewer): &Whole, (other, more): &Whole) -> bool {
    let least = 1.0 + SAME;
    one.period <= other.period * least
        && one.memory <= other.memory
        && one.switch <= other.switch
        && (one.mixed || !other.mixed)
        && (fewer <= more || one.period * least < other.period)
}

/// Add a way unless another is as good, and drop those that it is as good as.
fn keep(ways: &mut Vec<Whole>, way: Whole) {
    if !ways.iter().any(|other| as_good(other, &way)) {
        ways.retain(|other| !as_good(&way, other));
        ways.push(way);
    }
}

/// Turns at the root, by set of tasks.
pub struct AtRoot {
    parts: Vec<Vec<Whole>>,
    /// Two or more turns, by mode.
    turns: [Vec<Vec<Whole>>; 2],
}

impl AtRoot {
    /// No turns yet of this many sets.
    pub fn new(sets: usize) -> Self {
        let ways = vec![Vec::new(); sets];
        AtRoot { parts: ways.clone(), turns: [ways.clone(), ways] }
    }

    /// Record the ways to run a set as one child, and find those to run it in turns within `limit` seconds.
    pub fn visit(&mut self, problem: &Problem, set: usize, parts: Vec<Whole>, limit: f64, steps: &mut Steps) {
        let mut kept = Vec::new();
        parts.into_iter().for_each(|way| keep(&mut kept, way));
        self.parts[set] = kept;
        for &switching in modes(problem) {
            let mut found = Vec::new();
            for (first, rest) in splits(problem, set) {
                let together = problem.transfers_between(first, rest, false);
                for (several, others) in [(false, &self.parts[rest]), (true, &self.turns[usize::from(switching)][rest])]
                {
                    for (one, fewer) in &self.parts[first] {
                        for (other, more) in others {
                            let turns =
                                [(one, false), (other, several)].map(|(point, several)| Turn { point, several });
                            let Some(mut point) = both(problem, turns[0], turns[1], switching, 0.0) else { continue };
                            point.period += together;
                            if point.period <= limit {
                                point.step = steps.push(Step::Turn { first: one.step, rest: other.step, switching });
                                keep(&mut found, (point, *fewer.max(more)));
                            }
                        }
                    }
                }
            }
            self.turns[usize::from(switching)][set] = found;
        }
    }

    /// The ways to run a set.
    pub fn ways(&self, set: usize) -> impl Iterator<Item = &Whole> {
        self.parts[set].iter().chain(&self.turns[0][set]).chain(&self.turns[1][set])
    }
}

/// The best schedule with all tasks in turn, each on the same number of units.
pub fn equal_turns(problem: &Problem) -> Option<Schedule> {
    let all = problem.all();
    let together: f64 =
        if all.is_power_of_two() { 0.0 } else { problem.transfers.iter().map(|one| one.together).sum() };
    let on = |units: u32| {
        let choice = |task: &crate::tune::problem::Task| task.choices.iter().find(|one| one.units == units).copied();
        let choices = problem.tasks.iter().map(choice).collect::<Option<Vec<_>>>()?;
        if !choices.iter().all(|one| problem.holds(one.memory)) {
            return None;
        }
        let switching = !problem.holds(choices.iter().map(|one| one.memory).sum());
        let switches: f64 = problem.tasks.iter().map(|task| task.switch).sum();
        let seconds: f64 = choices.iter().map(|one| one.seconds).sum();
        Some((seconds + together + if switching { switches } else { 0.0 }, units, switching))
    };
    let (seconds, units, switching) = fewest((1..=problem.units).filter_map(on))?;
    let mut order: Vec<usize> = Vec::new();
    while order.len() < problem.tasks.len() {
        let done = order.iter().fold(0, |set, task| set | 1 << task);
        let next =
            (0..problem.tasks.len()).find(|&task| done >> task & 1 == 0 && problem.before(1 << task) & !done == 0)?;
        order.push(next);
    }
    let children = order.into_iter().map(|task| Tree::Leaf { task, units }).collect();
    Some(Schedule { seconds, units, tree: Tree::Then { children, switching } })
}
