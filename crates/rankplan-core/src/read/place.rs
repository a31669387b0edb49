//! Where a value is, and a fault with its path.

use crate::diagnostic::Diagnostic;
use crate::read::value::Value;

/// A step of a path: a key of a mapping, or an index.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Part {
    /// A key.
    Key(String),
    /// An index in a list, or a key that is a number.
    Index(i64),
}

/// The way from a whole content to a value in it. It is made on the stack while a reader descends: a path costs nothing
/// until there is a fault.
#[derive(Clone, Copy)]
pub struct Place<'a> {
    outer: Option<&'a Place<'a>>,
    step: Step<'a>,
}

#[derive(Clone, Copy)]
enum Step<'a> {
    /// The content itself.
    Whole,
    Name(&'a str),
    Key(&'a Value),
    Index(usize),
}

impl<'a> Place<'a> {
    /// The place of a whole content.
    pub const WHOLE: Place<'static> = Place { outer: None, step: Step::Whole };

    /// The place of the value of a key in the mapping at this place.
    pub fn name(&'a self, name: &'a str) -> Self {
        Place { outer: Some(self), step: Step::Name(name) }
    }

    /// The place of the value of a key, whatever its type.
    pub fn key(&'a self, key: &'a Value) -> Self {
        Place { outer: Some(self), step: Step::Key(key) }
    }

    /// The place of an item in the list at this place.
    pub fn index(&'a self, index: usize) -> Self {
        Place { outer: Some(self), step: Step::Index(index) }
    }

    /// The steps of the path.
    pub fn path(&self) -> Vec<Part> {
        let mut path = self.outer.map(Place::path).unwrap_or_default();
        path.extend(match self.step {
            Step::Whole => None,
            Step::Name(name) => Some(Part::Key(name.to_owned())),
            Step::Key(key) => Some(part_of(key)),
            Step::Index(index) => Some(Part::Index(index as i64)),
        });
        path
    }

    /// The last key of the path and the indexes after it, as messages name a value: `` `cores[0]` ``.
    pub fn named(&self) -> String {
        let path = self.path();
        let last = path.iter().rposition(|part| matches!(part, Part::Key(_))).unwrap_or(0);
        format!("`{}`", path_text(&path[last..]))
    }
}

/// A key as a step of a path. One of another type than text is shown as Python writes it.
fn part_of(key: &Value) -> Part {
    match key {
        Value::Text(text) => Part::Key(text.to_string()),
        Value::Int(number) => Part::Index(number.value),
        Value::Bool(value) => Part::Index(i64::from(*value)),
        Value::Null => Part::Key("None".to_owned()),
        Value::Float(number) => Part::Key(number.text()),
        other => Part::Key(crate::read::shown::shown(other)),
    }
}

/// A path as messages show it: `nodes[0].labels.rack`.
pub fn path_text(path: &[Part]) -> String {
    let mut text = String::new();
    for part in path {
        match part {
            Part::Index(index) => text.push_str(&format!("[{index}]")),
            Part::Key(key) => {
                text.push_str(if text.is_empty() { "" } else { "." });
                text.push_str(key);
            }
        }
    }
    text
}

/// A fault with the path of its value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// Where the value is.
    pub path: Vec<Part>,
    /// What is wrong with it.
    pub diagnostic: Diagnostic,
    /// The text that the labels of the diagnostic point into.
    pub text: Option<String>,
}

impl Fault {
    /// The fault of the value at a place.
    pub fn at(place: &Place<'_>, diagnostic: Diagnostic) -> Self {
        Fault { path: place.path(), diagnostic, text: None }
    }
}

/// The faults in the order of a content, each once.
pub fn in_order(mut faults: Vec<Fault>, content: &Value) -> Vec<Fault> {
    faults.sort_by_cached_key(|fault| position(content, &fault.path));
    let mut seen: Vec<Fault> = Vec::with_capacity(faults.len());
    for fault in faults {
        // Equal faults have equal paths, and so are neighbours.
        if !seen.iter().rev().take_while(|other| other.path == fault.path).any(|other| *other == fault) {
            seen.push(fault);
        }
    }
    seen
}

/// Where a path leads: the index of each of its keys in its mapping, -1 for a key that is missing. Faults are sorted by it.
pub fn position(content: &Value, path: &[Part]) -> Vec<i64> {
    let mut position = Vec::with_capacity(path.len());
    let mut here = Some(content);
    for part in path {
        here = match (here, part) {
            (Some(Value::Map(pairs)), part) => {
                let found = pairs.iter().position(|(key, _)| part_of(key) == *part);
                position.push(found.map_or(-1, |index| index as i64));
                found.map(|index| &pairs[index].1)
            }
            (Some(Value::List(items)), Part::Index(index)) => {
                position.push(*index);
                usize::try_from(*index).ok().and_then(|index| items.get(index))
            }
            _ => break,
        };
    }
    position
}
