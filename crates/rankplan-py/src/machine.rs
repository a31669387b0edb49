//! The texts of hardware facts.

use pyo3::prelude::*;
use rankplan_core::machine;

use crate::rank_set::RankSet;

/// Return the numbers of a kernel list such as `0-55,112-167` (empty: none), or `None` for any other text.
#[pyfunction]
pub fn cpu_list(text: &str) -> Option<RankSet> {
    machine::cpu_list(text).map(RankSet)
}

/// Return disjoint sets of CPUs as text, `<CPUs> x<count> +<step>` for each run of equally spaced ones.
///
/// `0,112 x56` are the cores 0,112 and 1,113 to 55,167: the step is 1 unless it is written.
#[pyfunction]
pub fn groups_text(groups: Vec<RankSet>) -> Vec<String> {
    let groups: Vec<_> = groups.into_iter().map(|group| group.0).collect();
    machine::groups_text(&groups)
}

/// Return a PCI address as the kernel writes it, with a domain of four digits, or `None` for any other text.
#[pyfunction]
pub fn pci_address(text: &str) -> Option<String> {
    machine::pci_address(text)
}
