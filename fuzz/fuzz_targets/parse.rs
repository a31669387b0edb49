//! Every text is read or rejected, and the canonical text of a map or set reads back as the same value.

#![no_main]

use libfuzzer_sys::fuzz_target;
use rankplan_core::syntax::{Part, Ranks, parse, parse_rank_set};
use rankplan_core::{RankMap, RankRange, RankSet};

fuzz_target!(|input: (Option<u32>, &str)| {
    let (resources, text) = input;
    if let Ok(map) = RankMap::parse(text, resources) {
        let parts = parse(text).expect("it is valid");
        let used = RankSet::from_ranges(parts.iter().filter_map(|part| range(part, resources)));
        assert_eq!(map.resources(), used);
        assert_eq!(map.segments().map(|segment| segment.resources).sum::<u32>(), used.len());
        let printed = map.to_string();
        let again = RankMap::parse(&printed, resources).expect("canonical text is valid");
        assert_eq!(again, map);
        assert_eq!(again.to_string(), printed);
        // The text is also valid for the smallest number of resources that it needs, and invalid for any smaller one.
        let needed = map.resources().ranges().last().map_or(0, |last| last.last() + 1);
        assert_eq!(RankMap::parse(text, Some(needed)).is_ok(), resources.is_none_or(|given| given >= needed));
        assert!(RankMap::parse(&printed, Some(needed - 1)).is_err());
    }
    if let Ok(set) = parse_rank_set(text) {
        assert_eq!(parse_rank_set(&set.to_string()), Ok(set.clone()));
        assert_eq!(set, RankSet::from_ranges(set.ranges().iter().rev().copied()));
        let pairs = set.ranges().windows(2);
        assert!(pairs.into_iter().all(|pair| pair[0].last() + 1 < pair[1].first()), "ascending, with gaps");
    }
});

fn range(part: &Part, resources: Option<u32>) -> Option<RankRange> {
    match part.resources.ranks {
        Ranks::Range { first, last } => RankRange::new(first, last),
        Ranks::All => RankRange::counted(0, resources?),
    }
}
