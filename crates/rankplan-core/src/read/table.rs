//! Tables of fields: what a mapping may state, by name, kind and bounds.
//!
//! A table is data: readers walk it, and a JSON schema can be printed from it.

use crate::diagnostic::Diagnostic;
use crate::read::names::Names;
use crate::read::place::{Fault, Place};
use crate::read::record::{Read, Record};
use crate::read::value::Value;

/// Reads a value of a kind that only one table has.
pub type Own = fn(&Value, &Place<'_>, Option<&Names>) -> Result<Read, Vec<Fault>>;

/// What a value must be.
#[derive(Clone, Copy, Debug)]
pub enum Kind {
    /// A whole number within bounds, or its digits as text.
    Count {
        /// The least one.
        least: i64,
        /// The largest one.
        most: i64,
    },
    /// A real number within bounds, or its text.
    Number {
        /// The least one.
        least: f64,
        /// The largest one.
        most: f64,
    },
    /// A finite real number between whole ones, or its text.
    Real {
        /// The least one.
        least: i64,
        /// Whether it must be above the least one.
        above: bool,
        /// The largest one.
        most: i64,
    },
    /// Bytes from 1 MiB to 1 EiB: a whole number, or a number and a unit, such as `80 GiB`.
    Bytes,
    /// True or false, also as people write them: `yes`, `off`, 1.
    Switch,
    /// True or false.
    Flag,
    /// A text.
    Text,
    /// A text that is not empty.
    Name,
    /// A name, or a whole number that is taken as one.
    Label,
    /// The absolute path of a file.
    AbsolutePath,
    /// A hostname or an address, with these characters besides ASCII letters and digits. It does not start with `-`.
    Host(&'static str),
    /// A set of ranks: a range as text, a whole number, or a list of them.
    Ranks,
    /// A list of CPUs, or of NUMA nodes, as the kernel writes it.
    Cpus,
    /// Disjoint sets of CPUs, as `machine::groups_text` writes them; one may stand for the list.
    CpuGroups,
    /// A PCI address.
    PciAddress,
    /// How far a network card is: one of `machine::DISTANCES`.
    Distance,
    /// A known type of accelerators.
    AcceleratorType,
    /// The node's own id of an accelerator: a text, or a whole number that is taken as one.
    AcceleratorId,
    /// A type of hardware that is no accelerator.
    HardwareType,
    /// One of these words.
    Word(&'static [&'static str]),
    /// A real number above 0, up to 1.
    Fraction,
    /// The sizes of parallel groups: a mapping, or a text such as `d4t2p1`, which is kept.
    Sizes(&'static Table),
    /// An order of slots, such as `tp-cp-ep-dp-pp`.
    SlotOrder,
    /// Any value, which is kept.
    Plain,
    /// Null, or a value of a kind.
    OrNull(&'static Kind),
    /// A list with a value of each kind.
    Tuple(&'static [Kind]),
    /// A list of values of a kind.
    List {
        /// The kind of each item.
        of: &'static Kind,
        /// Whether it may be empty.
        empty: bool,
    },
    /// A mapping with keys and values of these kinds.
    Map {
        /// The kind of each key.
        keys: &'static Kind,
        /// The kind of each value.
        values: &'static Kind,
    },
    /// A mapping with known keys.
    Record(&'static Table),
    /// What a function of the table's own file reads.
    Own(Own),
    /// A list of values of a kind, or a value of another kind that is no list.
    ListOr {
        /// The kind of each item.
        of: &'static Kind,
        /// The kind of a value that is no list.
        or: &'static Kind,
    },
}

/// The fields of a mapping.
#[derive(Debug)]
pub struct Table {
    /// What one is called if it is no mapping, and what to write then; else it has the name of its key, and the help lists
    /// its fields.
    pub called: Option<(&'static str, &'static str)>,
    /// The fields, in groups that tables may share.
    pub groups: &'static [&'static [Field]],
    /// The fault of fields that do not fit together, each of which is right.
    pub check: Option<fn(&Record) -> Option<Diagnostic>>,
}

impl Table {
    /// Every field.
    pub fn fields(&self) -> impl Iterator<Item = &'static Field> + Clone {
        self.groups.iter().flat_map(|group| group.iter())
    }

    /// The field of a name.
    pub fn field(&self, name: &str) -> Option<&'static Field> {
        self.fields().find(|field| field.name == name)
    }

    /// The names of the fields.
    pub fn names(&self) -> Vec<&'static str> {
        self.fields().map(|field| field.name).collect()
    }
}

/// A key of a mapping.
#[derive(Debug)]
pub struct Field {
    /// The key.
    pub name: &'static str,
    /// What its value must be.
    pub kind: Kind,
    /// What states nothing.
    pub absent: Absent,
    /// What it says, for people.
    pub about: &'static str,
}

/// When a key counts as missing, and whether it may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Absent {
    /// It must be there.
    Never,
    /// It may be missing.
    Missing,
    /// It may be missing, or null.
    Null,
    /// It may be missing, null, or an empty text.
    Empty,
}

impl Field {
    /// A field that may be missing.
    pub const fn new(name: &'static str, kind: Kind, about: &'static str) -> Self {
        Field { name, kind, absent: Absent::Missing, about }
    }

    /// The same field, with another rule for when it counts as missing.
    pub const fn absent(self, absent: Absent) -> Self {
        Field { absent, ..self }
    }
}
