//! A value as a file or a program states it, before anything is known about it.

use std::sync::Arc;

use smol_str::SmolStr;

use crate::rank_set::RankSet;

/// What a file or a program states: the types of YAML and JSON, and anything else by its text.
///
/// Lists and mappings are shared, because the anchors of a YAML file may repeat one many times. Rare and large values are
/// behind a pointer, which keeps the others small.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// Nothing.
    Null,
    /// True or false.
    Bool(bool),
    /// A whole number.
    Int(Int),
    /// A real number.
    Float(Float),
    /// A text. Short ones, as most keys and names are, need no memory of their own.
    Text(SmolStr),
    /// A sequence.
    List(Arc<[Value]>),
    /// Keys and values, in the order of their source.
    Map(Arc<[(Value, Value)]>),
    /// A set of ranks that a program passes.
    Ranks(Arc<RankSet>),
    /// Anything else.
    Other(Arc<Other>),
}

/// A whole number. One beyond 64 bits is the largest, or the smallest, of them: it is beyond every bound.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Int {
    /// The number.
    pub value: i64,
    /// How its source writes it, if not in decimal digits, or if `value` is another number.
    pub written: Option<Box<str>>,
}

/// A real number.
#[derive(Clone, Debug, PartialEq)]
pub struct Float {
    /// The number.
    pub value: f64,
    /// How its source writes it, if that is known.
    pub written: Option<Box<str>>,
}

/// A value of a type that no file has, such as an object of a program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Other {
    /// How messages show it.
    pub shown: String,
    /// Its text, with a replacement character for each lone surrogate, if it is a text with such.
    pub text: Option<String>,
}

impl Int {
    /// The number as its source writes it.
    pub fn text(&self) -> String {
        self.written.as_deref().map_or_else(|| self.value.to_string(), str::to_owned)
    }
}

impl Float {
    /// The number as its source writes it, else as Python does.
    pub fn text(&self) -> String {
        self.written.as_deref().map_or_else(|| float_text(self.value), str::to_owned)
    }
}

/// A real number with as few digits as identify it, as Python writes it: `1e+16`, `1e-05`, `nan`.
pub fn float_text(value: f64) -> String {
    let text = format!("{value:?}").to_lowercase();
    let Some((digits, exponent)) = text.split_once('e') else { return text };
    let (sign, exponent) = exponent.strip_prefix('-').map_or(('+', exponent), |exponent| ('-', exponent));
    format!("{digits}e{sign}{exponent:0>2}")
}

impl Value {
    /// A list of values.
    pub fn list(values: impl IntoIterator<Item = Value>) -> Self {
        Value::List(values.into_iter().collect())
    }

    /// A mapping from names to values.
    pub fn map<'a>(pairs: impl IntoIterator<Item = (&'a str, Value)>) -> Self {
        Value::Map(pairs.into_iter().map(|(key, value)| (Value::from(key), value)).collect())
    }

    /// The value of a text key of a mapping, if this is a mapping that has it.
    pub fn get(&self, key: &str) -> Option<&Value> {
        let Value::Map(pairs) = self else { return None };
        pairs.iter().find_map(|(name, value)| matches!(name, Value::Text(name) if name == key).then_some(value))
    }

    /// Whether it states nothing: null, zero, an empty text, list or mapping.
    pub fn is_empty(&self) -> bool {
        match self {
            Value::Null => true,
            Value::Bool(value) => !value,
            Value::Int(number) => number.value == 0,
            Value::Float(number) => number.value == 0.0,
            Value::Text(text) => text.is_empty(),
            Value::List(items) => items.is_empty(),
            Value::Map(pairs) => pairs.is_empty(),
            Value::Ranks(ranks) => ranks.is_empty(),
            Value::Other(_) => false,
        }
    }
}

impl From<&str> for Value {
    fn from(text: &str) -> Self {
        Value::Text(text.into())
    }
}

impl From<String> for Value {
    fn from(text: String) -> Self {
        Value::Text(text.into())
    }
}

impl From<i64> for Value {
    fn from(value: i64) -> Self {
        Value::Int(Int { value, written: None })
    }
}

impl From<u32> for Value {
    fn from(value: u32) -> Self {
        Value::from(i64::from(value))
    }
}

impl From<f64> for Value {
    fn from(value: f64) -> Self {
        Value::Float(Float { value, written: None })
    }
}

impl From<bool> for Value {
    fn from(value: bool) -> Self {
        Value::Bool(value)
    }
}
