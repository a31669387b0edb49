//! Whole segments of nodes within domains: a packing problem.
//!
//! `k` segments of `s` nodes fit into domains of `d` nodes if, and only if, the sum of `d / s` is at least `k`. Several sizes
//! are packed best fit, largest first; where that fails, a search over the patterns of each domain decides.

use std::collections::HashSet;

/// Segments of one size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Want {
    /// Nodes of a segment, at least 1.
    pub size: u32,
    /// How many segments.
    pub count: u32,
}

/// Where segments are, or why they are nowhere.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Packing {
    /// By want, the domain of each of its segments, ascending.
    Fits(Vec<Vec<u32>>),
    /// No packing exists.
    Impossible,
    /// The search ended before it found a packing or excluded one.
    OutOfBudget,
}

/// Pack segments into domains with this many nodes each, in as few domains as best fit finds.
///
/// `budget` limits the states that the search visits.
pub fn pack(domains: &[u32], wants: &[Want], budget: u32) -> Packing {
    let mut order: Vec<usize> = (0..wants.len()).filter(|&want| wants[want].count > 0).collect();
    order.sort_by_key(|&want| std::cmp::Reverse(wants[want].size));
    if let [want] = order[..] {
        let Some(found) = of_one_size(domains, wants[want]) else { return Packing::Impossible };
        let mut all = vec![Vec::new(); wants.len()];
        all[want] = found;
        return Packing::Fits(all);
    }
    let capacity = |size: u32| domains.iter().map(|domain| u64::from(domain / size)).sum::<u64>();
    let nodes: u64 = order.iter().map(|&want| u64::from(wants[want].size) * u64::from(wants[want].count)).sum();
    let too_many = |&want: &usize| capacity(wants[want].size) < u64::from(wants[want].count);
    if nodes > capacity(1) || order.iter().any(too_many) {
        return Packing::Impossible;
    }
    if let Some(found) = best_fit(domains, wants, &order) {
        return Packing::Fits(found);
    }
    let smallest = order.last().map_or(1, |&want| wants[want].size);
    if domains.iter().filter(|&&domain| domain >= smallest).count() > MOST_SEARCHED {
        return Packing::OutOfBudget;
    }
    Search::new(domains, wants, &order, budget).run()
}

/// The most domains that are searched: the search goes one call deeper for each of them.
const MOST_SEARCHED: usize = 1_000;

/// Segments of one size in the fewest domains: the largest first, and the last one as small as possible.
fn of_one_size(domains: &[u32], Want { size, count }: Want) -> Option<Vec<u32>> {
    let mut order: Vec<u32> = (0..domains.len() as u32).collect();
    let holds = |domain: u32| domains[domain as usize] / size;
    order.sort_by_key(|&domain| (std::cmp::Reverse(holds(domain)), domains[domain as usize]));
    let (mut found, mut left) = (Vec::new(), count);
    for index in 0..order.len() {
        if left == 0 {
            break;
        }
        let mut domain = order[index];
        if holds(domain) >= left {
            let rest = order[index..].iter().copied().filter(|&domain| holds(domain) >= left);
            domain = rest.min_by_key(|&domain| (domains[domain as usize], domain))?;
        }
        let taken = holds(domain).min(left);
        found.extend(std::iter::repeat_n(domain, taken as usize));
        left -= taken;
    }
    found.sort_unstable();
    (left == 0).then_some(found)
}

/// Each segment, largest first, in the fullest domain that has room.
fn best_fit(domains: &[u32], wants: &[Want], order: &[usize]) -> Option<Vec<Vec<u32>>> {
    let mut free: std::collections::BTreeSet<(u32, u32)> = domains.iter().copied().zip(0..).collect();
    let mut found = vec![Vec::new(); wants.len()];
    for &want in order {
        for _ in 0..wants[want].count {
            let &(left, domain) = free.range((wants[want].size, 0)..).next()?;
            free.remove(&(left, domain));
            free.insert((left - wants[want].size, domain));
            found[want].push(domain);
        }
        found[want].sort_unstable();
    }
    Some(found)
}

/// A search over the domains, largest first: each takes a pattern of segments to which no other segment can be added.
struct Search<'a> {
    wants: &'a [Want],
    /// Wants by size, largest first.
    order: &'a [usize],
    /// Domains with their numbers, largest first.
    domains: Vec<(u32, u32)>,
    /// By domain, the nodes of it and all later ones.
    room: Vec<u64>,
    seen: HashSet<(usize, Vec<u32>)>,
    chosen: Vec<Vec<u32>>,
    budget: u32,
}

impl<'a> Search<'a> {
    fn new(domains: &[u32], wants: &'a [Want], order: &'a [usize], budget: u32) -> Self {
        let mut domains: Vec<(u32, u32)> = domains.iter().copied().zip(0..).collect();
        domains.sort_by_key(|&(size, domain)| (std::cmp::Reverse(size), domain));
        let mut room = vec![0; domains.len() + 1];
        for (index, &(size, _)) in domains.iter().enumerate().rev() {
            room[index] = room[index + 1] + u64::from(size);
        }
        Search { wants, order, domains, room, seen: HashSet::new(), chosen: Vec::new(), budget }
    }

    fn run(mut self) -> Packing {
        let mut left: Vec<u32> = self.order.iter().map(|&want| self.wants[want].count).collect();
        if self.domain(0, &mut left) {
            let mut found = vec![Vec::new(); self.wants.len()];
            for (pattern, &(_, domain)) in self.chosen.iter().zip(&self.domains) {
                for (&count, &want) in pattern.iter().zip(self.order) {
                    found[want].extend(std::iter::repeat_n(domain, count as usize));
                }
            }
            found.iter_mut().for_each(|domains| domains.sort_unstable());
            return Packing::Fits(found);
        }
        if self.budget == 0 { Packing::OutOfBudget } else { Packing::Impossible }
    }

    /// Whether the segments that are left fit into this domain and the later ones.
    fn domain(&mut self, index: usize, left: &mut Vec<u32>) -> bool {
        if left.iter().all(|&count| count == 0) {
            return true;
        }
        let size = |at: usize| self.wants[self.order[at]].size;
        let needed: u64 = left.iter().enumerate().map(|(at, &count)| u64::from(count) * u64::from(size(at))).sum();
        if self.budget == 0
            || index == self.domains.len()
            || needed > self.room[index]
            || !self.seen.insert((index, left.clone()))
        {
            return false;
        }
        self.budget -= 1;
        let mut pattern = vec![0; left.len()];
        self.pattern(index, 0, self.domains[index].0, left, &mut pattern)
    }

    /// Choose how many segments of each size from `at` on go into a domain with this many nodes left.
    fn pattern(&mut self, index: usize, at: usize, nodes: u32, left: &mut Vec<u32>, pattern: &mut Vec<u32>) -> bool {
        let size = |at: usize| self.wants[self.order[at]].size;
        if at == left.len() {
            let addable = (0..left.len()).any(|at| left[at] > 0 && size(at) <= nodes);
            if addable {
                return false;
            }
            self.chosen.push(pattern.clone());
            if self.domain(index + 1, left) {
                return true;
            }
            self.chosen.pop();
            return false;
        }
        let (each, most) = (size(at), left[at].min(nodes / size(at)));
        for count in (0..=most).rev() {
            left[at] -= count;
            pattern[at] = count;
            let fits = self.pattern(index, at + 1, nodes - count * each, left, pattern);
            left[at] += count;
            if fits {
                return true;
            }
        }
        pattern[at] = 0;
        false
    }
}
