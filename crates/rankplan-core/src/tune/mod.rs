//! The lowest-cost schedule of components on accelerators, exact under the model.
//!
//! A leaf of a schedule is a component on `n` accelerators: one micro-batch of `M` takes it `t(n) / M`. A `then` node runs
//! its children in turn on the same accelerators, a `pipe` node beside each other, pipelined by micro-batch. Each subtree
//! has a warm-up `w`, the time of its first micro-batch, and a period `p`, the time between two:
//!
//! - leaf: `w = p = t(n) / M`;
//! - `pipe`: `w` is the longest path through its children, `p` the longest of theirs;
//! - `then` in a `pipe`: the sums of its children's.
//!
//! A subtree takes `w + (M - 1) * p`, a `then` at the root the sum of its children. If iterations overlap, only `p * M` counts.
//! A `then` keeps all its children in memory if they fit, else each is loaded for its turn. Of schedules whose seconds differ by
//! a share of at most [`problem::SAME`], the one with the fewest units is the best.
//!
//! The search builds the fronts of all subsets of the components, from small to large, and for each number of
//! accelerators. `Bounds` leaves out schedules that cannot be part of the best one.
//!
//! The modules in order of use; each one uses only those above it:
//!
//! | module | content |
//! |---|---|
//! | [`problem`], `steps` | components with times and sizes; schedules, and how they were put together |
//! | `front`, `bounds` | costs that no other beats; the time that a part of the best schedule may take |
//! | `pipeline`, `turns` | components beside each other; components in turn |

mod bounds;
mod front;
mod pipeline;
pub mod problem;
mod steps;
mod turns;

use crate::tune::bounds::{Bounds, Limits};
use crate::tune::front::{MOST_READY, Point, Table, add, beaten};
use crate::tune::pipeline::{Extension, Readiness};
use crate::tune::problem::{Problem, SAME, Schedule, Shape, fewest, members, subsets};
use crate::tune::steps::{Step, Steps};
use crate::tune::turns::{AtRoot, InPipeline, Whole, equal_turns};

/// The schedule of a shape with the least time, and of those the one with the fewest units; `None` if there is none.
pub fn solve(problem: &Problem, shape: Shape) -> Option<Schedule> {
    if !problem.is_sound() {
        return None;
    }
    if shape == Shape::Equal {
        return equal_turns(problem);
    }
    // A schedule on fewer, larger units is quickly found, and often almost as good.
    let coarse =
        problem.coarser().and_then(|coarse| solve(&coarse, shape)).map_or(f64::INFINITY, |found| found.seconds);
    Search::new(problem, shape, Bounds::new(problem, shape, coarse)).best()
}

/// The fronts of the subsets.
struct Search<'a> {
    problem: &'a Problem,
    shape: Shape,
    bounds: Bounds,
    steps: Steps,
    /// By set: a single task or a `then`, as a part of a pipeline.
    blocks: Vec<Table>,
    /// By set: pipelines of two or more blocks.
    pipes: Vec<Table>,
    /// Children of a `then` in a pipeline.
    turns: InPipeline,
    /// Children of a `then` at the root.
    root: AtRoot,
    ready: Vec<Readiness>,
}

impl<'a> Search<'a> {
    fn new(problem: &'a Problem, shape: Shape, bounds: Bounds) -> Self {
        let sets = problem.all() + 1;
        let ready = (0..sets).map(|set| Readiness::new(problem, set)).collect();
        let tables = vec![Table::default(); sets];
        Search {
            problem,
            shape,
            bounds,
            steps: Steps::default(),
            blocks: tables.clone(),
            pipes: tables,
            turns: InPipeline::new(sets),
            root: AtRoot::new(sets),
            ready,
        }
    }

    fn best(mut self) -> Option<Schedule> {
        let all = self.problem.all();
        for set in 1..=all {
            if self.is_part(set) {
                self.visit(set);
            }
        }
        let counts = |point: &Point| point.mixed || self.shape != Shape::Hybrid;
        let ways = self.root.ways(all).filter(|(point, _)| counts(point));
        let best = fewest(ways.map(|&(point, units)| (point.period, units, point.step)));
        best.map(|(seconds, units, step)| Schedule { seconds, units, tree: self.steps.tree(step) })
    }

    /// Whether no task outside the set must run between two of its tasks.
    fn is_closed(&self, set: usize) -> bool {
        let problem = self.problem;
        let reach = |mut found: usize, next: &dyn Fn(usize) -> usize| loop {
            let more = found | next(found);
            if more == found {
                return found;
            }
            found = more;
        };
        let after = |from: usize| {
            members(problem.all())
                .filter(|&task| problem.tasks[task].after as usize & from != 0)
                .fold(0, |set, task| set | 1 << task)
        };
        let before = |from: usize| problem.before(from);
        reach(set, &after) & reach(set, &before) & !set == 0
    }

    /// Whether a set can be a part of a schedule. Without turns, only the beginnings of the whole pipeline and single tasks can.
    fn is_part(&self, set: usize) -> bool {
        let begins = self.problem.before(set) & !set == 0;
        self.is_closed(set) && (self.shape != Shape::Disaggregated || begins || set.is_power_of_two())
    }

    /// A task that the last block of a pipeline of this set always has, as a set; 0 if it is unknown.
    ///
    /// The order of blocks that do not wait for each other is free. A block with the last task can be the last block if no
    /// other block waits for it: if none of its tasks can have one after it.
    fn end(&self, set: usize) -> usize {
        let ends = set & !self.problem.before(set);
        let end = 1 << ends.ilog2();
        let others = self.problem.before(set & !end);
        if self.shape == Shape::Disaggregated || others & set == 0 { end } else { 0 }
    }

    fn visit(&mut self, set: usize) {
        let units = self.problem.units;
        let limits = match self.shape {
            Shape::Collocated | Shape::Equal => vec![Limits::default(); units as usize + 1],
            _ => self.bounds.beside(set, self.problem.all()),
        };
        let at_root = self.bounds.at_root(set, self.problem.all());
        let mut parts: Vec<Whole> = Vec::new();
        let mut block = Table::new(units);
        if set.is_power_of_two() {
            self.leaf(set.trailing_zeros() as usize, &limits, &mut block, &mut parts);
        }
        let mut pipe = Table::new(units);
        if self.shape != Shape::Collocated {
            let end = self.end(set);
            for last in subsets(set).filter(|&last| last != set && last & end == end) {
                if self.problem.before(set & !last) & last == 0 {
                    self.extend(set & !last, last, &limits, at_root, &mut pipe, &mut parts);
                }
            }
            pipe.settle(self.ready[set].count());
        }
        self.pipes[set] = pipe;
        if self.shape != Shape::Disaggregated || set.is_power_of_two() {
            block.settle(0);
        }
        if self.shape == Shape::Hybrid && set != self.problem.all() {
            let part = [&block, &self.pipes[set]];
            let then = self.turns.visit(self.problem, set, part, &limits, &mut self.steps);
            block.absorb(then, 0);
        }
        self.blocks[set] = block;
        if self.shape == Shape::Disaggregated && set != self.problem.all() {
            return;
        }
        self.root.visit(self.problem, set, parts, at_root, &mut self.steps);
    }

    fn leaf(&mut self, task: usize, limits: &[Limits], block: &mut Table, parts: &mut Vec<Whole>) {
        let batches = f64::from(self.problem.batches);
        let (warmup, period) = self.problem.factors();
        for choice in &self.problem.tasks[task].choices {
            let Some(limits) = limits.get(choice.units as usize) else { break };
            if !self.problem.holds(choice.memory) {
                continue;
            }
            let each = choice.seconds / batches;
            let point = Point {
                warmup: if warmup > 0.0 { each } else { 0.0 },
                period: if period > 0.0 { each } else { 0.0 },
                memory: if self.problem.capacity.is_some() { choice.memory } else { 0.0 },
                switch: if self.problem.capacity.is_some() { self.problem.tasks[task].switch } else { 0.0 },
                once: 0.0,
                ready: [0.0; MOST_READY],
                mixed: false,
                step: self.steps.push(Step::Leaf { task, units: choice.units }),
            };
            parts.push((Point { warmup: 0.0, period: choice.seconds, ..point }, choice.units));
            if limits.allow(choice.seconds, warmup * each) {
                let front = block.at(choice.units);
                if !beaten(front, &point, 0) {
                    add(front, point, 0);
                }
            }
        }
    }

    /// Extend the pipelines of some tasks by the blocks of others.
    fn extend(
        &mut self,
        before: usize,
        last: usize,
        limits: &[Limits],
        at_root: f64,
        pipe: &mut Table,
        parts: &mut Vec<Whole>,
    ) {
        let (warmup, period) = self.problem.factors();
        let apart = self.problem.transfers_between(before, last, true);
        let [shorter, longer] = [before, before | last].map(|set| &self.ready[set]);
        let extension = Extension::new(self.problem, before, last, [shorter, longer]);
        let count = longer.count();
        let must_mix = self.shape == Shape::Hybrid && before | last == self.problem.all();
        let mut least = at_root;
        for (source, single) in [(&self.blocks[before], true), (&self.pipes[before], false)] {
            for (one, points) in source.iter() {
                let room = self.problem.units - one;
                // With a period and a warm-up only, one rises where the other falls.
                let falling = points.is_sorted_by(|one, other| one.warmup >= other.warmup);
                // By point, the least seconds from it on.
                let mut cheapest = vec![f64::INFINITY; points.len() + 1];
                for (index, first) in points.iter().enumerate().rev() {
                    cheapest[index] = cheapest[index + 1].min(period * first.period + warmup * first.warmup);
                }
                for (other, blocks) in self.blocks[last].iter().take_while(|(other, _)| *other <= room) {
                    let units = one + other;
                    let limits = &limits[units as usize];
                    let most = limits.most().max(least);
                    for second in blocks.iter().take_while(|second| period * second.period <= most) {
                        let follows = if extension.follows_all() { warmup * second.warmup } else { 0.0 };
                        let late = |first: &Point| period * second.period + warmup * first.warmup + follows > most;
                        let start = if falling { points.partition_point(late) } else { 0 };
                        for (first, cheapest) in points.iter().zip(&cheapest).skip(start) {
                            if cheapest + follows > most {
                                break;
                            }
                            let slower = first.period.max(second.period);
                            let once = first.once + second.once + apart;
                            let base = period * slower + once;
                            if base + warmup * first.warmup + follows > most {
                                continue;
                            }
                            let first =
                                if single { &Point { ready: [first.warmup; MOST_READY], ..*first } } else { first };
                            let (until, ready) = extension.times(first, second);
                            let seconds = base + warmup * until;
                            let mut point = Point {
                                warmup: until,
                                period: slower,
                                memory: first.memory.max(second.memory),
                                switch: first.switch.max(second.switch),
                                once,
                                ready,
                                mixed: first.mixed || second.mixed,
                                step: 0,
                            };
                            let step = Step::Pipe { before: first.step, last: second.step };
                            let counts =
                                limits.allow(seconds, warmup * until) && !beaten(pipe.at(units), &point, count);
                            let whole = seconds <= least && (point.mixed || !must_mix);
                            if counts || whole {
                                point.step = self.steps.push(step);
                            }
                            if counts {
                                add(pipe.at(units), point, count);
                            }
                            if whole {
                                parts.push((
                                    Point { warmup: 0.0, period: seconds, once: 0.0, mixed: true, ..point },
                                    units,
                                ));
                                // Later ones may be as fast with fewer units.
                                least = if self.problem.capacity.is_none() { seconds * (1.0 + SAME) } else { least };
                            }
                        }
                    }
                }
            }
        }
    }
}
