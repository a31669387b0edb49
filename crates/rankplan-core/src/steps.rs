//! Steps: parts of what a pool takes, each of which stays on one node.

/// So many steps of a size in a row.
pub type Steps = (u32, u32);

/// What each of some nodes gives: its position, and a number of accelerators.
pub(crate) type Shares = Vec<(usize, u32)>;

/// The steps to try for groups of these sizes, the largest first: their common multiple, then each of them.
///
/// Steps of more than `most` accelerators are left out.
pub fn step_sizes(sizes: &[u32], most: u32) -> Vec<u32> {
    let mut found: Vec<u32> = sizes.iter().copied().filter(|&size| size > 1).collect();
    let common = found.iter().try_fold(1, |multiple, &size| lcm(multiple, size, most));
    found.extend(common.filter(|&multiple| multiple > 1));
    found.retain(|&size| size <= most);
    found.sort_unstable_by(|a, b| b.cmp(a));
    found.dedup();
    found
}

/// The least common multiple, if it is at most `most`.
fn lcm(a: u32, b: u32, most: u32) -> Option<u32> {
    let (mut x, mut y) = (a, b);
    while y > 0 {
        (x, y) = (y, x % y);
    }
    (a / x).checked_mul(b).filter(|&multiple| multiple <= most)
}

/// A number of accelerators as steps of a size; the last one may be smaller.
pub(crate) fn steps_of(count: u32, step: u32) -> [Steps; 2] {
    [(count / step, step), (u32::from(!count.is_multiple_of(step)), count % step)]
}

/// What each node gives if every step is on one node, ascending; `None` if they do not fit.
///
/// `rooms` has the free accelerators of each node. Every step takes the first node that has room after the step before it,
/// which leaves most for those after it: a step on a later node leaves no more anywhere. So this finds a place for all steps
/// if there is one. Equal steps are put on a node at once, in time proportional to the nodes and to `steps`.
pub(crate) fn ascending(rooms: impl IntoIterator<Item = u32>, steps: &[Steps]) -> Option<Shares> {
    let mut shares = Shares::new();
    let mut steps = steps.iter().copied().filter(|&(times, _)| times > 0).peekable();
    let mut rooms = rooms.into_iter().enumerate();
    let Some((mut times, mut size)) = steps.next() else { return Some(shares) };
    loop {
        let (position, mut room) = rooms.next()?;
        let mut share = 0;
        while size <= room {
            let here = room.checked_div(size).unwrap_or(times).min(times);
            share += here * size;
            room -= here * size;
            times -= here;
            if times > 0 {
                break;
            }
            match steps.next() {
                Some(next) => (times, size) = next,
                None => {
                    shares.push((position, share));
                    return Some(shares);
                }
            }
        }
        if share > 0 {
            shares.push((position, share));
        }
    }
}

/// What each node gives if as many whole steps as possible come first, and the rest is of other nodes, node by node.
///
/// `None` if no node has room for a step, or the others have too little for the rest.
pub(crate) fn whole_first(rooms: impl IntoIterator<Item = u32>, count: u32, step: u32) -> Option<Shares> {
    let mut whole = Shares::new();
    let mut others = Shares::new();
    let mut rest = count;
    for (position, room) in rooms.into_iter().enumerate() {
        let share = room.min(rest) / step * step;
        rest -= share;
        if share > 0 {
            whole.push((position, share));
        } else {
            others.push((position, room));
        }
    }
    if whole.is_empty() {
        return None;
    }
    for (position, room) in others {
        if rest == 0 {
            break;
        }
        let share = room.min(rest);
        rest -= share;
        if share > 0 {
            whole.push((position, share));
        }
    }
    (rest == 0).then_some(whole)
}

#[cfg(test)]
mod tests {
    use super::{ascending, step_sizes, whole_first};

    #[test]
    fn steps_are_tried_from_the_common_multiple_down() {
        assert_eq!(step_sizes(&[4, 6, 1], 100), [12, 6, 4]);
        assert_eq!(step_sizes(&[4, 6], 10), [6, 4]);
        assert_eq!(step_sizes(&[8], 8), [8]);
        assert_eq!(step_sizes(&[1], 8), [0_u32; 0]);
        assert_eq!(step_sizes(&[u32::MAX, u32::MAX - 1], u32::MAX), [u32::MAX, u32::MAX - 1]);
    }

    #[test]
    fn every_step_is_on_a_node_that_is_not_before_the_last_one() {
        assert_eq!(ascending([3, 5], &[(3, 2)]), Some(vec![(0, 2), (1, 4)]));
        assert_eq!(ascending([1, 4, 2], &[(1, 2), (1, 3)]), None);
        assert_eq!(ascending([4, 4], &[(1, 3), (2, 2), (1, 1)]), None);
        assert_eq!(ascending([4, 5], &[(1, 3), (2, 2), (1, 1)]), Some(vec![(0, 3), (1, 5)]));
        assert_eq!(ascending([0], &[]), Some(vec![]));
    }

    #[test]
    fn what_is_no_whole_step_comes_from_other_nodes() {
        assert_eq!(whole_first([3, 1, 2], 4, 2), Some(vec![(0, 2), (2, 2)]));
        assert_eq!(whole_first([3, 1, 0], 3, 2), Some(vec![(0, 2), (1, 1)]));
        assert_eq!(whole_first([3, 0], 3, 2), None);
        assert_eq!(whole_first([1, 1], 2, 2), None);
    }
}
