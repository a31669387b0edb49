//! Costs of partial schedules, and the sets of those that no other one beats.

use std::cmp::Ordering;

/// Most readiness times of a pipeline: one for each task outside it.
pub const MOST_READY: usize = 7;

/// The cost of a partial schedule. Less of each number is better.
#[derive(Clone, Copy, Debug)]
pub struct Point {
    /// Seconds until its first micro-batch is done.
    pub warmup: f64,
    /// Seconds between micro-batches. Of a whole schedule: seconds of an iteration.
    pub period: f64,
    /// Resident memory on its fullest accelerator.
    pub memory: f64,
    /// Seconds to load and unload its resident components.
    pub switch: f64,
    /// Seconds of its transfers.
    pub once: f64,
    /// When the first micro-batch is ready for tasks that follow parts of the pipeline.
    pub ready: [f64; MOST_READY],
    /// Whether components share accelerators in it, so that it counts as hybrid.
    pub mixed: bool,
    /// The last step of its making.
    pub step: u32,
}

impl Point {
    fn order(&self, other: &Point) -> Ordering {
        self.period.total_cmp(&other.period).then(self.warmup.total_cmp(&other.warmup))
    }

    /// Whether this cost is as good in each number; `ready` of them are readiness times.
    fn beats(&self, other: &Point, ready: usize) -> bool {
        self.period <= other.period
            && self.warmup <= other.warmup
            && self.memory <= other.memory
            && self.switch <= other.switch
            && self.once <= other.once
            && (self.mixed || !other.mixed)
            && self.ready[..ready].iter().zip(&other.ready[..ready]).all(|(one, two)| one <= two)
    }
}

/// Points of which none beats another, by ascending period.
pub type Front = Vec<Point>;

/// How many neighbors of a point are compared with it. With only a period and a warm-up, the next one is enough; otherwise a
/// front may keep points that a distant one beats, which costs time but changes no result.
const NEIGHBORS: usize = 24;

/// Whether a point of the front is as good: one with a period as short, and most likely the longest of these.
pub fn beaten(front: &Front, point: &Point, ready: usize) -> bool {
    let shorter = front.partition_point(|other| other.order(point).is_le());
    front[..shorter].iter().rev().take(NEIGHBORS).any(|other| other.beats(point, ready))
}

/// Add a point that is not beaten, and drop the next ones if it beats them.
pub fn add(front: &mut Front, point: Point, ready: usize) {
    let start = front.partition_point(|other| other.order(&point).is_lt());
    let beaten = front[start..].iter().take_while(|other| point.beats(other, ready)).count();
    if beaten > 0 {
        front[start] = point;
        front.drain(start + 1..start + beaten);
        return;
    }
    front.insert(start, point);
}

/// Fronts by the exact number of units.
#[derive(Clone, Debug, Default)]
pub struct Table {
    fronts: Vec<Front>,
    /// The numbers of units with points, ascending.
    sizes: Vec<u32>,
}

impl Table {
    /// A table for up to this many units.
    pub fn new(units: u32) -> Self {
        Table { fronts: vec![Front::new(); units as usize + 1], sizes: Vec::new() }
    }

    /// The front of a number of units within the table.
    pub fn at(&mut self, units: u32) -> &mut Front {
        &mut self.fronts[units as usize]
    }

    /// Drop points that are no better than one with fewer units, and note the sizes.
    pub fn settle(&mut self, ready: usize) {
        let mut best = Front::new();
        for front in &mut self.fronts {
            front.retain(|point| !beaten(&best, point, ready));
            for &point in front.iter() {
                add(&mut best, point, ready);
            }
        }
        self.sizes = (0..self.fronts.len() as u32).filter(|&size| !self.fronts[size as usize].is_empty()).collect();
    }

    /// The fronts with points, by units, ascending.
    pub fn iter(&self) -> impl Iterator<Item = (u32, &Front)> {
        self.sizes.iter().map(|&size| (size, &self.fronts[size as usize]))
    }

    /// Add the points of another table.
    pub fn absorb(&mut self, other: Table, ready: usize) {
        for (front, points) in self.fronts.iter_mut().zip(other.fronts) {
            for point in points {
                if !beaten(front, &point, ready) {
                    add(front, point, ready);
                }
            }
        }
        self.settle(ready);
    }
}
