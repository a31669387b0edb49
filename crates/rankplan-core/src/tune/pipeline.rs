//! How the blocks of a pipeline follow each other: when the first micro-batch reaches each of them.

use crate::tune::front::{MOST_READY, Point};
use crate::tune::problem::{Problem, members};

/// When a block can start, or a later task, given the finished blocks of a pipeline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ready {
    /// From the start.
    AtOnce,
    /// When the whole pipeline so far is done.
    AtEnd,
    /// At a readiness time of the point.
    At(usize),
}

/// The distinct times at which tasks outside a set can start, if it is the beginning of a pipeline.
#[derive(Clone, Debug)]
pub struct Readiness {
    /// The tasks that some later task waits for. Tasks that wait for the whole pipeline have no entry.
    waits: Vec<usize>,
    /// The tasks that none of the set follows.
    ends: usize,
}

impl Readiness {
    /// The readiness times after a set of tasks.
    pub fn new(problem: &Problem, set: usize) -> Self {
        let ends = set & !problem.before(set);
        let mut waits = Vec::new();
        for task in members(problem.all() & !set) {
            let wait = problem.tasks[task].after as usize & set;
            if wait != 0 && ends & !wait != 0 && !waits.contains(&wait) {
                waits.push(wait);
            }
        }
        waits.truncate(MOST_READY);
        Readiness { waits, ends }
    }

    /// How many times differ from the end of the pipeline.
    pub fn count(&self) -> usize {
        self.waits.len()
    }

    fn of(&self, wait: usize) -> Ready {
        if wait == 0 {
            return Ready::AtOnce;
        }
        let index = self.waits.iter().position(|&other| other == wait);
        if self.ends & !wait == 0 { Ready::AtEnd } else { index.map_or(Ready::AtEnd, Ready::At) }
    }
}

/// How a block extends a pipeline.
#[derive(Clone, Debug)]
pub struct Extension {
    starts: Vec<Ready>,
    /// By readiness time of the longer pipeline: the time before, and whether the block itself must be done.
    waits: Vec<(Ready, bool)>,
}

impl Extension {
    /// A pipeline of the tasks `before`, extended by a block of the tasks `block`.
    pub fn new(problem: &Problem, before: usize, block: usize, [shorter, longer]: [&Readiness; 2]) -> Self {
        let mut starts = Vec::new();
        for task in members(block) {
            let ready = shorter.of(problem.tasks[task].after as usize & before);
            if ready != Ready::AtOnce && !starts.contains(&ready) {
                starts.push(ready);
            }
        }
        let waits = longer.waits.iter().map(|wait| (shorter.of(wait & before), wait & block != 0)).collect();
        Extension { starts, waits }
    }

    /// Whether the block waits for all of the shorter pipeline, so that their warm-ups add up.
    pub fn follows_all(&self) -> bool {
        self.starts.contains(&Ready::AtEnd)
    }

    /// The warm-up and the readiness times of the longer pipeline.
    pub fn times(&self, pipe: &Point, block: &Point) -> (f64, [f64; MOST_READY]) {
        let time = |ready: Ready| match ready {
            Ready::AtOnce => 0.0,
            Ready::AtEnd => pipe.warmup,
            Ready::At(index) => pipe.ready[index],
        };
        let start = self.starts.iter().fold(0.0, |latest: f64, &ready| latest.max(time(ready)));
        let done = start + block.warmup;
        let mut ready = [0.0; MOST_READY];
        for (slot, &(before, follows)) in ready.iter_mut().zip(&self.waits) {
            *slot = if follows { time(before).max(done) } else { time(before) };
        }
        (pipe.warmup.max(done), ready)
    }
}
