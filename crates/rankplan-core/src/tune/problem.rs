//! The problem: components with their sizes and times; and its solution: a schedule.

/// Most components of a problem: the search visits subsets of them.
pub const MOST_TASKS: usize = 8;

/// Seconds of whole schedules that differ by this share or less count as equal: sums round differently in every order.
pub const SAME: f64 = 1e-9;

/// Units of a problem in one unit of the coarser problem.
const COARSER: u32 = 8;
/// Fewest units of a coarser problem.
const LEAST_COARSE: u32 = 16;

/// A number of units that a component may have.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Choice {
    /// Accelerators, counted in units of the problem.
    pub units: u32,
    /// Seconds of one iteration on that many.
    pub seconds: f64,
    /// Resident memory on each accelerator.
    pub memory: f64,
}

/// A component: its possible sizes, and the components that it needs the results of.
#[derive(Clone, Debug, PartialEq)]
pub struct Task {
    /// The possible sizes, ascending and each once.
    pub choices: Vec<Choice>,
    /// Seconds to load and unload it once.
    pub switch: f64,
    /// The tasks before it, as a bit set.
    pub after: u32,
}

/// Weights that one component sends to another once an iteration.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Transfer {
    /// The sender and the receiver.
    pub ends: [usize; 2],
    /// Seconds if they run on different accelerators.
    pub apart: f64,
    /// Seconds if they share accelerators.
    pub together: f64,
}

/// Which schedules count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// All components in turn.
    Collocated,
    /// All components in turn, each on equally many accelerators.
    Equal,
    /// No two components share accelerators.
    Disaggregated,
    /// Some share, some do not.
    Hybrid,
}

/// Components, accelerators, and the rules of time.
#[derive(Clone, Debug, PartialEq)]
pub struct Problem {
    /// The components.
    pub tasks: Vec<Task>,
    /// Accelerators, in units.
    pub units: u32,
    /// Micro-batches of an iteration.
    pub batches: u32,
    /// Whether iterations overlap (asynchronous), so that only the period counts.
    pub stale: bool,
    /// Memory of an accelerator, if it limits which components can be resident together.
    pub capacity: Option<f64>,
    /// Weights to send once an iteration.
    pub transfers: Vec<Transfer>,
}

/// A schedule: components as leaves, run in turn on the same accelerators or beside each other.
#[derive(Clone, Debug, PartialEq)]
pub enum Tree {
    /// A component on some units.
    Leaf {
        /// The component.
        task: usize,
        /// Its accelerators, in units.
        units: u32,
    },
    /// The children run in turn, from the first of the same accelerators on.
    Then {
        /// The children in order.
        children: Vec<Tree>,
        /// Whether each is loaded for its turn and unloaded after it.
        switching: bool,
    },
    /// The children run on different accelerators, pipelined by micro-batch.
    Pipe {
        /// The children, each after those that it depends on.
        children: Vec<Tree>,
    },
}

/// A schedule with its cost.
#[derive(Clone, Debug, PartialEq)]
pub struct Schedule {
    /// Seconds of an iteration.
    pub seconds: f64,
    /// Accelerators used, in units.
    pub units: u32,
    /// The schedule.
    pub tree: Tree,
}

impl Problem {
    /// Whether the numbers can be searched: 1 to 8 tasks, ascending sizes from 1 on, finite times that are not negative.
    pub fn is_sound(&self) -> bool {
        let counts = |value: f64| value.is_finite() && value >= 0.0;
        let all = 1_u32.checked_shl(self.tasks.len() as u32).map_or(0, |bit| bit.wrapping_sub(1));
        let sound = |(index, task): (usize, &Task)| {
            let ascending = task.choices.windows(2).all(|pair| pair[0].units < pair[1].units);
            let sizes = task.choices.iter().all(|one| one.units > 0 && counts(one.seconds) && counts(one.memory));
            ascending && sizes && counts(task.switch) && task.after & !all == 0 && task.after & (1 << index) == 0
        };
        let known = |one: &Transfer| one.ends.iter().all(|&end| end < self.tasks.len());
        (1..=MOST_TASKS).contains(&self.tasks.len())
            && self.batches > 0
            && self.tasks.iter().enumerate().all(sound)
            && self.transfers.iter().all(|one| known(one) && counts(one.apart) && counts(one.together))
    }

    /// The problem with fewer, larger units, whose schedules all fit this one too; `None` if it has too few units.
    pub fn coarser(&self) -> Option<Problem> {
        let units = self.units / COARSER;
        let coarse = |task: &Task| {
            let fitting = task.choices.iter().filter(|choice| self.holds(choice.memory));
            let mut choices: Vec<Choice> = Vec::new();
            for choice in fitting {
                let larger = Choice { units: choice.units.div_ceil(COARSER), ..*choice };
                match choices.last_mut() {
                    Some(last) if choice.seconds >= last.seconds => {}
                    Some(last) if last.units == larger.units => *last = larger,
                    _ => choices.push(larger),
                }
            }
            Task { choices, ..task.clone() }
        };
        (units >= LEAST_COARSE).then(|| Problem {
            tasks: self.tasks.iter().map(coarse).collect(),
            units,
            ..self.clone()
        })
    }

    /// All tasks, as a bit set.
    pub fn all(&self) -> usize {
        (1 << self.tasks.len()) - 1
    }

    /// How often the warm-up and the period of a pipeline count in an iteration.
    pub fn factors(&self) -> (f64, f64) {
        let batches = f64::from(self.batches);
        if self.stale { (0.0, batches) } else { (1.0, batches - 1.0) }
    }

    /// Whether an accelerator can hold this much.
    pub fn holds(&self, memory: f64) -> bool {
        self.capacity.is_none_or(|capacity| memory <= capacity * (1.0 + 1e-12))
    }

    /// Seconds of the transfers between two sets of tasks that run apart, or share accelerators.
    pub fn transfers_between(&self, one: usize, other: usize, apart: bool) -> f64 {
        let crosses = |transfer: &&Transfer| {
            let [from, to] = transfer.ends.map(|end| 1 << end);
            (from & one != 0 && to & other != 0) || (from & other != 0 && to & one != 0)
        };
        let seconds = |transfer: &Transfer| if apart { transfer.apart } else { transfer.together };
        self.transfers.iter().filter(crosses).map(seconds).sum()
    }

    /// The tasks directly before some tasks.
    pub fn before(&self, tasks: usize) -> usize {
        members(tasks).fold(0, |found, task| found | self.tasks[task].after as usize)
    }
}

/// The members of a bit set, ascending.
pub fn members(set: usize) -> impl Iterator<Item = usize> {
    (0..usize::BITS as usize).filter(move |bit| set >> bit & 1 == 1)
}

/// The subsets of a bit set, without the empty one.
pub fn subsets(set: usize) -> impl Iterator<Item = usize> {
    std::iter::successors(Some(set), move |&one| one.checked_sub(1).map(|less| less & set)).take_while(|&one| one != 0)
}

/// Of ways that take some seconds on some units, the one with the fewest units among those as fast as the fastest.
pub fn fewest<T>(ways: impl Iterator<Item = (f64, u32, T)>) -> Option<(f64, u32, T)> {
    let ways: Vec<_> = ways.collect();
    let least = ways.iter().map(|way| way.0).fold(f64::INFINITY, f64::min);
    let as_fast = ways.into_iter().filter(|way| way.0 <= least * (1.0 + SAME));
    as_fast.min_by(|one, other| one.1.cmp(&other.1).then(one.0.total_cmp(&other.0)))
}
