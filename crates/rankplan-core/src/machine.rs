//! The texts of hardware facts: CPUs, groups of them, PCI addresses, and how far a card is from an accelerator.

use crate::rank_set::{RankRange, RankSet};
use crate::syntax::parse_rank_set;

/// The largest CPU, or NUMA node. It is far above the limit of the kernel: a list with a larger one is damaged.
pub const MAX_CPU: u32 = 65_535;

/// How far two devices are apart, the nearest first, as `nvidia-smi topo` writes it: one switch, several switches, a host
/// bridge, a NUMA node, beyond.
pub const DISTANCES: [&str; 5] = ["PIX", "PXB", "PHB", "NODE", "SYS"];

/// The members of a list of the kernel such as `0-55,112-167`, which may be empty; `None` for any other text.
pub fn cpu_list(text: &str) -> Option<RankSet> {
    let text = text.trim();
    if text.is_empty() {
        return Some(RankSet::default());
    }
    let plain = |part: &str| {
        let mut ends = part.split('-');
        ends.all(|end| !end.is_empty() && end.bytes().all(|byte| byte.is_ascii_digit()))
    };
    let found = parse_rank_set(text).ok().filter(|_| text.split(',').all(plain))?;
    found.last().is_none_or(|last| last <= MAX_CPU).then_some(found)
}

/// The sets of a text of [`groups_text`]: `0,112 x56 +1`. `None` for any other text, and for CPUs that cannot exist.
pub fn parse_groups(text: &str) -> Option<Vec<RankSet>> {
    let mut parts = text.split(' ');
    let start = cpu_list(parts.next().filter(|cpus| cpus.trim() == *cpus)?)?;
    let mut factor = |sign: char| match parts.next() {
        None => Some(1),
        Some(part) => part.strip_prefix(sign).and_then(short_number),
    };
    let (count, step) = (factor('x')?, factor('+')?);
    if parts.next().is_some() {
        return None;
    }
    let last = u64::from(start.last()?) + u64::from(count - 1) * u64::from(step);
    (last <= u64::from(MAX_CPU)).then(|| (0..count).filter_map(|index| shifted(&start, index * step)).collect())
}

/// A number of at most five digits without leading zeros.
fn short_number(digits: &str) -> Option<u32> {
    let plain = digits.len() <= 5 && !digits.starts_with('0') && digits.bytes().all(|byte| byte.is_ascii_digit());
    plain.then(|| digits.parse().ok()).flatten()
}

/// Disjoint sets of CPUs as text, `<CPUs> x<count> +<step>` for each run of equally spaced ones; the step is 1 unless it is
/// written. `0,112 x56` are the cores 0,112 and 1,113 to 55,167.
pub fn groups_text<'a>(groups: impl IntoIterator<Item = &'a RankSet>) -> Vec<String> {
    let mut ordered: Vec<_> = groups.into_iter().filter_map(|group| Some((group.nth(0)?, group))).collect();
    ordered.sort_by_key(|(first, _)| *first);
    let mut texts = Vec::new();
    let mut index = 0;
    while let Some(&(first, start)) = ordered.get(index) {
        let (mut count, mut step) = (1, 0);
        while let Some(&(other, group)) = ordered.get(index + count as usize) {
            step = if step == 0 { other - first } else { step };
            if shifted(start, count * step).as_ref() != Some(group) {
                break;
            }
            count += 1;
        }
        let by = if step > 1 { format!(" +{step}") } else { String::new() };
        texts.push(if count == 1 { start.to_string() } else { format!("{start} x{count}{by}") });
        index += count as usize;
    }
    texts
}

/// The set with this number added to each member; `None` beyond the largest rank.
fn shifted(cpus: &RankSet, by: u32) -> Option<RankSet> {
    let moved = |range: &RankRange| RankRange::new(range.first().checked_add(by)?, range.last().checked_add(by)?);
    Some(RankSet::from_ranges(cpus.ranges().iter().map(moved).collect::<Option<Vec<_>>>()?))
}

/// A PCI address as the kernel writes it, with a domain of four digits: `0000:1b:00.0`. `None` for any other text.
pub fn pci_address(text: &str) -> Option<String> {
    let hex = |part: &str, lengths: &[usize]| {
        (lengths.contains(&part.len()) && part.bytes().all(|byte| byte.is_ascii_hexdigit()))
            .then(|| part.to_lowercase())
    };
    let mut parts = text.trim().split(':');
    let domain = hex(parts.next()?, &[4, 5, 6, 7, 8])?;
    let bus = hex(parts.next()?, &[2])?;
    let (device, function) = parts.next()?.split_once('.')?;
    let device = hex(device, &[2])?;
    let plain = parts.next().is_none() && function.len() == 1 && ("0"..="7").contains(&function);
    let domain = u32::from_str_radix(&domain, 16).ok()?;
    plain.then(|| format!("{domain:04x}:{bus}:{device}.{function}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_are_read_as_they_are_written() {
        for text in ["0,112 x56", "0-3", "0 x4 +2", "5,7"] {
            let groups = parse_groups(text).expect("groups");
            assert_eq!(groups_text(&groups), [text]);
        }
        for text in ["", " 0", "0 x0", "0 +2", "0 x2 x3", "0 x65536 +9", "0 x2 +1 ", "a"] {
            assert_eq!(parse_groups(text), None, "{text}");
        }
    }

    #[test]
    fn addresses_are_those_of_the_kernel() {
        assert_eq!(pci_address(" 00000000:1B:00.0 ").as_deref(), Some("0000:1b:00.0"));
        for text in ["1b:00.0", "0000:1b:00.8", "0000:1b:00", "0000:1b:00.0:0", "gggg:1b:00.0"] {
            assert_eq!(pci_address(text), None, "{text}");
        }
    }
}
