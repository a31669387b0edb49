//! How many nodes of each domain an arrangement uses, if only sizes count: the fewest domains at every level, outermost first.
//!
//! A domain of a level takes whole units: a multiple of the unit of each inner level. So the nodes that a domain has room for
//! follow from those of its inner domains, and the units fit if, and only if, the outermost domains have room for all of them.

use crate::arrange::hierarchy::Hierarchy;

/// The table of a domain has an entry for each number of units; merging them takes at most as many steps as this in all.
const MOST_STEPS: u64 = 2_000_000;

/// Nodes to use, in whole units, and the nodes that can be used.
pub(crate) struct Filling<'a> {
    pub domains: &'a Hierarchy,
    /// By level, the nodes that a domain takes at a time; each divides the next outer one, and the outermost one `nodes`.
    pub units: &'a [u32],
    /// The number of nodes to use.
    pub nodes: u32,
    /// By innermost domain, the nodes that can be used.
    pub free: &'a [u32],
    /// Nodes of a segment, for counting whole segments of unused nodes.
    pub segment: u32,
    /// By level and domain, the most nodes to use; a level without entries has no limit.
    pub caps: &'a [Vec<u32>],
    /// A level whose domains take no nodes, or at least and at most so many.
    pub shares: Option<Shares>,
}

/// Even shares of the domains in use of a level.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Shares {
    pub level: usize,
    /// The least number of nodes of a domain in use.
    pub least: u32,
    /// The domains in use.
    pub count: u32,
    /// The largest number of nodes of a domain.
    pub most: u32,
    /// The outer levels of which the domains in use count before those of this level.
    pub outer: usize,
}

impl Shares {
    /// The most even shares of so many nodes in domains with this room: the largest least share, in the fewest domains, with the
    /// least largest share. No shares are better.
    pub fn of(level: usize, room: &[u32], nodes: u32, unit: u32) -> Self {
        let room = Self::units(room, unit);
        let units = nodes / unit;
        let mut held = 0;
        let more = room.iter().take_while(|&&room| {
            held += room;
            held < units
        });
        let count = more.count() as u32 + 1;
        let smallest = room.get(count as usize - 1).copied().unwrap_or(0);
        let (least, most) = ((units / count).min(smallest), Self::most(&room, units, count));
        Shares { level, least: least * unit, count, most: most * unit, outer: 0 }
    }

    /// The units that each domain has room for, descending.
    fn units(room: &[u32], unit: u32) -> Vec<u32> {
        let mut room: Vec<u32> = room.iter().map(|room| room / unit).collect();
        room.sort_unstable_by_key(|&units| std::cmp::Reverse(units));
        room
    }

    /// The least largest share of so many domains; `room` is in units, descending.
    fn most(room: &[u32], units: u32, count: u32) -> u32 {
        let used = &room[..room.len().min(count as usize)];
        let holds = |most: u32| used.iter().map(|&room| u64::from(room.min(most))).sum::<u64>() >= u64::from(units);
        let (mut low, mut high) = (units / count.max(1), units);
        while low < high {
            let middle = low + (high - low) / 2;
            if holds(middle) { high = middle } else { low = middle + 1 }
        }
        low
    }
}

/// Stands in the cost of what no domain can take.
const NEVER: i64 = i64::MAX / 4;

/// The nodes in use of each innermost domain.
pub(crate) struct Filled {
    pub nodes: Vec<u32>,
    /// By level the domains in use, then by level the unused nodes in them, then the whole segments of unused nodes that no
    /// longer exist: no other filling has a lesser list. If the tables would be too large, the fewest domains of each level.
    pub least: Vec<i64>,
    /// Whether this filling has that list.
    pub reached: bool,
    /// The shares, if they are to be even.
    pub shares: Option<Shares>,
}

/// For each number of units of a domain, the least cost, and the units of each inner domain.
struct Table {
    /// The cost, entry after entry.
    costs: Vec<i64>,
    /// By inner domain, the last one first: its units, by the units of it and all later ones.
    picks: Vec<Vec<u32>>,
    inner: Vec<Table>,
}

impl Filling<'_> {
    /// By level and domain, the nodes that it has room for.
    pub fn room(&self) -> Vec<Vec<u32>> {
        let levels = self.domains.levels();
        let mut room = vec![Vec::new(); levels];
        for level in (0..levels).rev() {
            let inner = level + 1;
            room[level] = (0..self.domains.count(level))
                .map(|domain| {
                    let sum = if inner == levels {
                        self.free[domain as usize]
                    } else {
                        room[inner][self.domains.inside(level, domain)].iter().sum()
                    };
                    let cap = self.caps.get(level).and_then(|caps| caps.get(domain as usize));
                    let most = self.shares.filter(|shares| shares.level == level).map(|shares| shares.most);
                    let sum = sum.min(cap.copied().unwrap_or(u32::MAX)).min(most.unwrap_or(u32::MAX));
                    sum - sum % self.units[level]
                })
                .collect();
        }
        room
    }

    /// The nodes of each innermost domain, or `None` if the domains have no room for all units.
    pub fn fill(&self) -> Option<Filled> {
        let room = self.room();
        let Some(outermost) = room.first() else {
            return (self.nodes <= self.free[0]).then(|| Filled {
                nodes: vec![self.nodes],
                least: vec![self.lost(self.domains.nodes(), self.nodes)],
                reached: true,
                shares: None,
            });
        };
        if outermost.iter().map(|&room| u64::from(room)).sum::<u64>() < u64::from(self.nodes) {
            return None;
        }
        let mut nodes = vec![0; self.free.len()];
        if self.steps(&room) > MOST_STEPS {
            self.spread(&room, 0, 0..outermost.len(), self.nodes, &mut nodes);
            return Some(Filled { nodes, least: self.fewest(&room), reached: false, shares: self.shares });
        }
        let table = self.merged(&room, 0, 0..outermost.len(), 1);
        let count = self.nodes / self.units[0];
        let costs = table.costs.get(count as usize * self.width()..)?;
        let mut least = costs.get(..self.width()).filter(|least| least[0] < NEVER)?.to_vec();
        self.trace(&table, 0, 0..outermost.len(), count, &mut nodes);
        let shares = self.shares.map(|shares| Shares { count: least.remove(shares.outer) as u32, ..shares });
        Some(Filled { nodes, least, reached: true, shares })
    }

    /// The same with the most even shares of the domains of a level in use; `outer` levels are in as few domains as without.
    pub fn balanced(mut self, level: usize, outer: usize) -> Option<Filled> {
        let filled = self.fill()?;
        let (room, unit) = (self.room(), self.units[level]);
        let best = Shares::of(level, &room[level], self.nodes, unit);
        self.shares = Some(Shares { outer, ..best });
        if !filled.reached {
            return self.fill().or(Some(filled));
        }
        let all = self.nodes / unit;
        let mut found = |least: u32, most: u32| {
            self.shares = Some(Shares { least: least * unit, most: most * unit, outer, ..best });
            self.fill().filter(|found| found.least[..outer] == filled.least[..outer])
        };
        let (least, even) = (1..=best.least / unit).rev().find_map(|least| Some((least, found(least, all)?)))?;
        let count = even.shares.map_or(best.count, |shares| shares.count);
        let fewest = |found: &Filled| found.shares.is_some_and(|shares| shares.count == count);
        (Shares::most(&Shares::units(&room[level], unit), all, count)..=all)
            .find_map(|most| found(least, most).filter(fewest))
    }

    /// For each level by itself, the fewest domains that have room; the rest is 0.
    fn fewest(&self, room: &[Vec<u32>]) -> Vec<i64> {
        let mut least = vec![0; 2 * self.domains.levels() + 1];
        for (least, room) in least.iter_mut().zip(room) {
            let mut sizes = room.clone();
            sizes.sort_unstable_by_key(|&size| std::cmp::Reverse(size));
            let mut held = 0;
            *least = 1 + sizes
                .iter()
                .take_while(|&&size| {
                    held += size;
                    held < self.nodes
                })
                .count() as i64;
        }
        least
    }

    fn width(&self) -> usize {
        2 * self.domains.levels() + 1 + usize::from(self.shares.is_some())
    }

    /// Where the domains in use of a level count.
    fn used_at(&self, level: usize) -> usize {
        level + usize::from(self.shares.is_some_and(|shares| shares.outer <= level))
    }

    /// The whole segments of unused nodes that are lost if so many nodes of an innermost domain are used.
    fn lost(&self, size: u32, nodes: u32) -> i64 {
        if self.segment < 2 { 0 } else { i64::from(size / self.segment) - i64::from((size - nodes) / self.segment) }
    }

    /// The steps that the tables take.
    fn steps(&self, room: &[Vec<u32>]) -> u64 {
        let mut steps = 0_u64;
        let mut count = |level: usize, inner: std::ops::Range<usize>| {
            let mut before = 0_u64;
            for &room in &room[level][inner] {
                let units = u64::from(room.min(self.nodes) / self.units[level]);
                steps = steps.saturating_add((before + 1) * (units + 1));
                before = (before + units).min(u64::from(self.nodes / self.units[level]));
            }
        };
        count(0, 0..room[0].len());
        for level in 1..room.len() {
            (0..self.domains.count(level - 1)).for_each(|outer| count(level, self.domains.inside(level - 1, outer)));
        }
        steps
    }

    /// The table of these sibling domains together, of which every `each` units count.
    fn merged(&self, room: &[Vec<u32>], level: usize, siblings: std::ops::Range<usize>, each: usize) -> Table {
        let width = self.width();
        let most = (self.nodes / self.units[level]) as usize;
        let mut merged = Table { costs: vec![0; width], picks: Vec::new(), inner: Vec::new() };
        for domain in siblings.rev() {
            let table = self.table(room, level, domain);
            let (before, own) = (merged.costs.len() / width - 1, table.costs.len() / width - 1);
            let all = (before + own).min(most);
            let mut costs = vec![NEVER; (all + 1) * width];
            let mut picks = vec![0; all + 1];
            let mut sum = vec![0; width];
            // Of equal costs, the one with more units in the first domain.
            for units in (0..=own.min(all)).rev().filter(|units| table.costs[units * width] < NEVER) {
                for rest in 0..=before.min(all - units) {
                    if merged.costs[rest * width] >= NEVER {
                        continue;
                    }
                    let pair = table.costs[units * width..].iter().zip(&merged.costs[rest * width..]);
                    sum.iter_mut().zip(pair).for_each(|(sum, (a, b))| *sum = a + b);
                    let best = &mut costs[(units + rest) * width..][..width];
                    if *sum < *best {
                        best.copy_from_slice(&sum);
                        picks[units + rest] = units as u32;
                    }
                }
            }
            merged.costs = costs;
            merged.picks.push(picks);
            merged.inner.push(table);
        }
        if each > 1 {
            merged.costs = merged.costs.chunks(width).step_by(each).flatten().copied().collect();
        }
        merged
    }

    /// The table of one domain.
    fn table(&self, room: &[Vec<u32>], level: usize, domain: usize) -> Table {
        let (width, unit, levels) = (self.width(), self.units[level], self.domains.levels());
        let size = self.domains.size(level, domain as u32);
        let mut table = if level + 1 == levels {
            let units = room[level][domain].min(self.nodes) / unit;
            let mut costs = vec![0; (units as usize + 1) * width];
            for (units, cost) in (0..).zip(costs.chunks_mut(width)) {
                cost[width - 1] = self.lost(size, units * unit);
            }
            Table { costs, picks: Vec::new(), inner: Vec::new() }
        } else {
            let each = unit / self.units[level + 1];
            self.merged(room, level + 1, self.domains.inside(level, domain as u32), each as usize)
        };
        table.costs.truncate((room[level][domain].min(self.nodes) / unit + 1) as usize * width);
        let shares = self.shares.filter(|shares| shares.level == level);
        for (units, cost) in (0..).zip(table.costs.chunks_mut(width)).skip(1) {
            cost[self.used_at(level)] += 1;
            cost[width - 1 - levels + level] += i64::from(size) - i64::from(units * unit);
            if let Some(shares) = shares {
                cost[shares.outer] += 1;
                if units * unit < shares.least {
                    cost[0] = NEVER;
                }
            }
        }
        table
    }

    /// The nodes of the innermost domains of these siblings, if they take so many units together.
    fn trace(&self, table: &Table, level: usize, siblings: std::ops::Range<usize>, units: u32, nodes: &mut [u32]) {
        let mut left = units as usize;
        for (domain, (picks, inner)) in siblings.zip(table.picks.iter().zip(&table.inner).rev()) {
            let units = picks[left];
            left -= units as usize;
            if level + 1 == self.domains.levels() {
                nodes[domain] = units * self.units[level];
            } else if units > 0 {
                let count = units * (self.units[level] / self.units[level + 1]);
                self.trace(inner, level + 1, self.domains.inside(level, domain as u32), count, nodes);
            }
        }
    }

    /// Fill these siblings, the largest first, and the last one as small as possible.
    fn spread(
        &self,
        room: &[Vec<u32>],
        level: usize,
        siblings: std::ops::Range<usize>,
        mut left: u32,
        nodes: &mut [u32],
    ) {
        let mut order: Vec<usize> = siblings.collect();
        order.sort_by_key(|&domain| std::cmp::Reverse(room[level][domain]));
        if self.shares.is_some_and(|shares| shares.level == level) {
            return self.even(room, level, &order, left, nodes);
        }
        for index in 0..order.len() {
            let mut domain = order[index];
            if left > 0 && room[level][domain] >= left {
                let enough = order[index..].partition_point(|&domain| room[level][domain] >= left);
                let smallest = room[level][order[index + enough - 1]];
                let alike = order[index..].partition_point(|&domain| room[level][domain] > smallest);
                domain = order[index + alike];
            }
            let taken = room[level][domain].min(left);
            if taken == 0 {
                return;
            }
            left -= taken;
            self.spread_inside(room, level, domain, taken, nodes);
        }
    }

    /// Fill as few of these domains as have room, the largest first, and each as much as the others.
    fn even(&self, room: &[Vec<u32>], level: usize, order: &[usize], mut left: u32, nodes: &mut [u32]) {
        let mut held = 0;
        let fewest = order.iter().take_while(|&&domain| {
            let more = held < left;
            held += room[level][domain];
            more
        });
        let used = &order[..fewest.count()];
        for (index, &domain) in used.iter().enumerate().rev() {
            let share = left / self.units[level] / (index as u32 + 1) * self.units[level];
            let share = if index == 0 { left } else { share.min(room[level][domain]) };
            left -= share;
            self.spread_inside(room, level, domain, share, nodes);
        }
    }

    fn spread_inside(&self, room: &[Vec<u32>], level: usize, domain: usize, share: u32, nodes: &mut [u32]) {
        if level + 1 == self.domains.levels() {
            nodes[domain] = share;
        } else {
            self.spread(room, level + 1, self.domains.inside(level, domain as u32), share, nodes);
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::expect_used, reason = "a test that expects too much fails, as it should")]

    use proptest::prelude::*;

    use crate::arrange::filling::{Filled, Filling, Shares};
    use crate::arrange::hierarchy::Hierarchy;

    /// Nodes of innermost domains, by outer domain: how many there are, and how many of these are free.
    #[derive(Clone, Debug)]
    struct Case {
        outer: Vec<Vec<(u32, u32)>>,
        /// The units of the inner level, and how many of these an outer domain takes at a time.
        units: (u32, u32),
        count: u32,
        segment: u32,
        caps: Vec<Vec<u32>>,
    }

    impl Case {
        fn domains(&self) -> Hierarchy {
            let (mut outer, mut inner) = (Vec::new(), Vec::new());
            for (number, sizes) in (0..).zip(&self.outer) {
                for (leaf, &(size, _)) in (0..).zip(sizes) {
                    outer.extend(std::iter::repeat_n(number, size as usize));
                    inner.extend(std::iter::repeat_n(leaf, size as usize));
                }
            }
            Hierarchy::new(outer.len() as u32, &[outer, inner]).expect("a label per node")
        }

        fn units(&self) -> [u32; 2] {
            [self.units.0 * self.units.1, self.units.0]
        }

        fn nodes(&self) -> u32 {
            self.count * self.units()[0]
        }

        fn free(&self) -> Vec<u32> {
            self.outer.iter().flatten().map(|&(size, free)| free.min(size)).collect()
        }

        fn cap(&self, level: usize, domain: usize) -> u32 {
            self.caps.get(level).and_then(|caps| caps.get(domain)).copied().unwrap_or(u32::MAX)
        }

        /// The nodes of each outer domain, if the inner ones have these.
        fn sums(&self, leaves: &[u32]) -> Vec<u32> {
            let mut rest = leaves;
            self.outer
                .iter()
                .map(|sizes| {
                    let (these, others) = rest.split_at(sizes.len());
                    rest = others;
                    these.iter().sum()
                })
                .collect()
        }

        /// By level, the nodes of each domain.
        fn levels(&self, leaves: &[u32]) -> [Vec<u32>; 2] {
            [self.sums(leaves), leaves.to_vec()]
        }

        fn holds(&self, leaves: &[u32]) -> bool {
            (0..).zip(self.levels(leaves)).all(|(level, nodes)| {
                (0..)
                    .zip(nodes)
                    .all(|(domain, nodes)| nodes % self.units()[level] == 0 && nodes <= self.cap(level, domain))
            })
        }

        /// Every way to fill the innermost domains.
        fn fillings(&self) -> Vec<Vec<u32>> {
            let mut found = vec![Vec::new()];
            for free in self.free() {
                found =
                    found.iter().flat_map(|leaves| (0..=free).map(|nodes| [&leaves[..], &[nodes]].concat())).collect();
            }
            found.retain(|leaves| leaves.iter().sum::<u32>() == self.nodes() && self.holds(leaves));
            found
        }

        /// The domains in use by level, the unused nodes in these, and the segments that are lost.
        fn cost(&self, leaves: &[u32]) -> Vec<i64> {
            let sizes: Vec<u32> = self.outer.iter().flatten().map(|&(size, _)| size).collect();
            let levels = self.levels(leaves).into_iter().zip(self.levels(&sizes));
            let used: Vec<Vec<(u32, u32)>> = levels
                .map(|(nodes, sizes)| nodes.into_iter().zip(sizes).filter(|&(nodes, _)| nodes > 0).collect())
                .collect();
            let mut cost: Vec<i64> = used.iter().map(|domains| domains.len() as i64).collect();
            cost.extend(
                used.iter().map(|domains| domains.iter().map(|&(nodes, size)| i64::from(size - nodes)).sum::<i64>()),
            );
            let whole = |nodes: u32| if self.segment > 1 { i64::from(nodes / self.segment) } else { 0 };
            cost.push(sizes.iter().zip(leaves).map(|(&size, &nodes)| whole(size) - whole(size - nodes)).sum());
            cost
        }

        /// The least share of a level, negated, the domains in use, and the largest share.
        fn shares(&self, level: usize, leaves: &[u32]) -> [i64; 3] {
            let used: Vec<i64> =
                self.levels(leaves)[level].iter().filter(|&&nodes| nodes > 0).map(|&nodes| nodes.into()).collect();
            [-used.iter().copied().min().unwrap_or(0), used.len() as i64, used.iter().copied().max().unwrap_or(0)]
        }

        /// Fill the domains; `shares` are a level and how many outer ones count before it.
        fn filled(&self, shares: Option<(usize, usize)>) -> Option<Filled> {
            let (domains, units, free) = (self.domains(), self.units(), self.free());
            let (nodes, segment, caps) = (self.nodes(), self.segment, &self.caps[..]);
            let filling = Filling { domains: &domains, units: &units, nodes, free: &free, segment, caps, shares: None };
            match shares {
                Some((level, outer)) => filling.balanced(level, outer),
                None => filling.fill(),
            }
        }
    }

    fn cases() -> impl Strategy<Value = Case> {
        let leaf = (1..5_u32, 0..5_u32);
        let outer = prop::collection::vec(prop::collection::vec(leaf, 1..4), 1..4);
        let caps = prop_oneof![
            2 => Just(Vec::new()),
            1 => prop::collection::vec(prop::collection::vec(0..6_u32, 0..4), 2),
        ];
        (outer, (1..3_u32, 1..3_u32), 1..7_u32, 1..4_u32, caps)
            .prop_map(|(outer, units, count, segment, caps)| Case { outer, units, count, segment, caps })
            .prop_filter("few enough to try all", |case| case.outer.iter().flatten().count() < 7)
    }

    /// The fewest domains of the outer levels, then the largest least share, the fewest domains, the least largest share.
    fn check_shares(case: &Case, level: usize, outer: usize) {
        let ranked = case.fillings().into_iter().map(|leaves| {
            let cost = case.cost(&leaves);
            (cost[..outer].to_vec(), case.shares(level, &leaves), cost)
        });
        let best = ranked.min();
        let found = case.filled(Some((level, outer)));
        assert_eq!(found.is_some(), best.is_some());
        if let (Some(filled), Some((_, shares, cost))) = (found, best) {
            assert_eq!(case.shares(level, &filled.nodes), shares);
            assert_eq!(filled.least, cost);
            assert_eq!(case.cost(&filled.nodes), cost);
            let even = filled.shares.expect("shares were wanted");
            assert_eq!([-i64::from(even.least), even.count.into(), even.most.into()], shares);
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

        /// Of all fillings of the least cost, the one with the most nodes in the first domains.
        #[test]
        fn domains_are_filled_at_the_least_cost(case in cases()) {
            let best = case.fillings().into_iter().min_by_key(|leaves| {
                let nodes = case.levels(leaves).concat();
                (case.cost(leaves), nodes.into_iter().map(std::cmp::Reverse).collect::<Vec<_>>())
            });
            let found = case.filled(None);
            prop_assert_eq!(found.as_ref().map(|filled| &filled.nodes), best.as_ref());
            if let (Some(filled), Some(best)) = (found, best) {
                prop_assert!(filled.reached);
                prop_assert_eq!(filled.least, case.cost(&best));
            }
        }

        #[test]
        fn shares_are_as_even_as_possible(case in cases(), level in 0..2_usize, outer in 0..3_usize) {
            check_shares(&case, level, outer);
        }

        /// Too many nodes for a table: whole units within the room of each domain, in the fewest outermost ones, of which the
        /// last one is as small as possible.
        #[test]
        fn many_nodes_are_spread_over_the_fewest_domains(mut case in cases(), even: bool) {
            let (domains, units, free, caps) = (case.domains(), case.units(), case.free(), case.caps.clone());
            let shares = even.then_some(Shares { level: 0, least: 0, count: 0, most: u32::MAX, outer: 0 });
            let mut filling =
                Filling { domains: &domains, units: &units, nodes: 0, free: &free, segment: 1, caps: &caps, shares };
            let room = filling.room();
            let most = room[0].iter().sum::<u32>() / units[0];
            prop_assume!(most > 0);
            case.count = 1 + (case.count - 1) % most;
            filling.nodes = case.nodes();
            let mut leaves = vec![0; free.len()];
            filling.spread(&room, 0, 0..room[0].len(), case.nodes(), &mut leaves);
            prop_assert_eq!(leaves.iter().sum::<u32>(), case.nodes());
            prop_assert!(case.holds(&leaves));
            prop_assert!(leaves.iter().zip(&free).all(|(nodes, free)| nodes <= free));

            let sums = case.sums(&leaves);
            let used: Vec<usize> = (0..sums.len()).filter(|&domain| sums[domain] > 0).collect();
            let largest = |count: usize| {
                let mut room = room[0].clone();
                room.sort_unstable();
                room.iter().rev().take(count).sum::<u32>()
            };
            let fewest = (1..).find(|&count| largest(count) >= case.nodes()).expect("there is room");
            prop_assert_eq!(used.len(), fewest);
            prop_assert_eq!(filling.fewest(&room)[0], fewest as i64);
            if even {
                let (least, most) = used.iter().fold((u32::MAX, 0), |(least, most), &domain| {
                    (least.min(sums[domain]), most.max(sums[domain]))
                });
                prop_assert!(least == most || used.iter().any(|&domain| sums[domain] == room[0][domain])
                    || most - least <= units[0]);
            } else {
                let rest = case.nodes() - largest(fewest - 1);
                let partly: Vec<usize> = used.iter().copied().filter(|&domain| sums[domain] < room[0][domain]).collect();
                prop_assert!(partly.len() < 2);
                for last in partly {
                    let smaller = |&domain: &usize| {
                        sums[domain] == 0 && room[0][domain] >= rest && (room[0][domain], domain) < (room[0][last], last)
                    };
                    prop_assert!(!(0..sums.len()).any(|domain| smaller(&domain)));
                }
            }
        }
    }

    #[test]
    fn without_levels_all_nodes_are_one_domain() {
        let domains = Hierarchy::new(7, &[]).expect("no labels");
        let filled = |nodes, segment| {
            Filling { domains: &domains, units: &[], nodes, free: &[6], segment, caps: &[], shares: None }.fill()
        };
        for nodes in 0..8 {
            let found = filled(nodes, 2);
            assert_eq!(found.is_some(), nodes <= 6);
            if let Some(found) = found {
                assert_eq!((found.nodes, found.least), (vec![nodes], vec![i64::from(3 - (7 - nodes) / 2)]));
            }
        }
        assert_eq!(filled(6, 1).map(|found| found.least), Some(vec![0]));
    }

    /// Three domains would be more even than two, but are more: the largest domains of all are in two outer ones.
    #[test]
    fn fewer_shares_come_before_smaller_ones() {
        let outer = vec![vec![(5, 5), (1, 1), (1, 1)], vec![(3, 3), (2, 2)]];
        check_shares(&Case { outer, units: (1, 1), count: 6, segment: 1, caps: Vec::new() }, 1, 1);
    }

    #[test]
    fn a_bound_of_shares_counts_the_smallest_domain_in_use() {
        let shares = |room: &[u32], nodes, unit| {
            let found = Shares::of(0, room, nodes, unit);
            (found.least, found.count, found.most)
        };
        assert_eq!(shares(&[1, 5], 6, 1), (1, 2, 5));
        assert_eq!(shares(&[4, 4, 4], 8, 1), (4, 2, 4));
        assert_eq!(shares(&[4, 5, 3], 8, 2), (4, 2, 4));
        assert_eq!(shares(&[9], 6, 3), (6, 1, 6));
    }
}
