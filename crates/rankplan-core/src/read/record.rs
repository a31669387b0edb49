//! What values say.

use smol_str::SmolStr;

use crate::rank_set::RankSet;
use crate::read::value::Value;

/// What a value says.
#[derive(Clone, Debug, PartialEq)]
pub enum Read {
    /// True or false.
    Bool(bool),
    /// A whole number.
    Int(i64),
    /// A real number.
    Float(f64),
    /// A text.
    Text(SmolStr),
    /// Ranks, CPUs or NUMA nodes.
    Ranks(RankSet),
    /// Nothing.
    Null,
    /// A value that is not read further.
    Plain(Value),
    /// The items of a list.
    List(Vec<Read>),
    /// Keys and values, in the order of their source; each key once.
    Map(Vec<(Read, Read)>),
    /// The fields of a mapping.
    Record(Record),
}

/// The stated fields of a mapping, by name, in the order of its table.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Record(pub Vec<(&'static str, Read)>);

impl Record {
    /// Whether a field is stated.
    pub fn states(&self, name: &str) -> bool {
        self.0.iter().any(|(known, _)| *known == name)
    }

    /// What the fields say, as plain values.
    pub fn plain(self) -> Value {
        Value::map(self.0.into_iter().map(|(name, read)| (name, read.plain())))
    }

    /// Take a field out.
    pub fn take(&mut self, name: &str) -> Option<Read> {
        let index = self.0.iter().position(|(known, _)| *known == name)?;
        Some(self.0.swap_remove(index).1)
    }
}

/// Conversions to the types that the kinds of fields give; the default for any other.
impl Read {
    /// What it says, as a plain value.
    pub fn plain(self) -> Value {
        match self {
            Read::Bool(on) => Value::Bool(on),
            Read::Int(number) => Value::from(number),
            Read::Float(number) => Value::from(number),
            Read::Text(text) => Value::Text(text),
            Read::Ranks(ranks) => Value::Ranks(ranks.into()),
            Read::Null => Value::Null,
            Read::Plain(value) => value,
            Read::List(items) => Value::list(items.into_iter().map(Read::plain)),
            Read::Map(pairs) => {
                Value::Map(pairs.into_iter().map(|(key, value)| (key.plain(), value.plain())).collect())
            }
            Read::Record(record) => record.plain(),
        }
    }

    /// A text.
    pub fn into_text(self) -> String {
        self.into_name().into()
    }

    /// A text without a copy: a short one needs no allocation.
    pub fn into_name(self) -> SmolStr {
        if let Read::Text(text) = self { text } else { SmolStr::default() }
    }

    /// True or false.
    pub fn into_bool(self) -> bool {
        matches!(self, Read::Bool(true))
    }

    /// A text, if it is not null.
    pub fn into_optional_text(self) -> Option<String> {
        if let Read::Text(text) = self { Some(text.into()) } else { None }
    }

    /// A whole number.
    pub fn into_int(self) -> i64 {
        if let Read::Int(number) = self { number } else { 0 }
    }

    /// A real number.
    pub fn into_float(self) -> f64 {
        if let Read::Float(number) = self { number } else { 0.0 }
    }

    /// Ranks.
    pub fn into_ranks(self) -> RankSet {
        if let Read::Ranks(ranks) = self { ranks } else { RankSet::default() }
    }

    /// The items of a list.
    pub fn into_list(self) -> Vec<Read> {
        if let Read::List(items) = self { items } else { Vec::new() }
    }

    /// The keys and values of a mapping.
    pub fn into_map(self) -> Vec<(Read, Read)> {
        if let Read::Map(pairs) = self { pairs } else { Vec::new() }
    }

    /// The fields of a mapping.
    pub fn into_record(self) -> Record {
        if let Read::Record(record) = self { record } else { Record::default() }
    }
}
