//! Walks a value along a table of fields: what it says, and every fault with its path.

use smol_str::SmolStr;

use crate::diagnostic::{Code, Diagnostic};
use crate::ids::MAX_RANK;
use crate::machine::{DISTANCES, MAX_CPU, cpu_list, parse_groups, pci_address};
use crate::rank_set::RankSet;
use crate::read::names::Names;
use crate::read::place::{Fault, Place};
use crate::read::record::{Read, Record};
use crate::read::shown::{all_printable, quoted, shown};
use crate::read::spelling::{CLOSE, did_you_mean, nearest};
use crate::read::table::{Absent, Field, Kind, Table};
use crate::read::value::Value;
use crate::selection::ResourceKind;
use crate::syntax::parse_rank_set;

/// Reads values, and collects their faults in the order in which it finds them.
pub struct Reader<'a> {
    /// The faults so far.
    pub faults: Vec<Fault>,
    /// The known names; without them, any name is known: the values come from a process that has checked them.
    names: Option<&'a Names>,
}

/// The most digits of a whole number as text.
const MOST_DIGITS: usize = 20;
/// What to write in place of an interpolation.
pub const RESOLVE: &str = "write the value, or pass the config after Hydra has resolved it";
const CUT: &str = "quote the placement: inside YAML braces a comma ends the text";
/// The kinds of groups that an order of slots names, in the usual one.
const SLOT_ORDER: [&str; 5] = ["tp", "cp", "ep", "dp", "pp"];
/// The smallest and the largest size. A smaller number, such as 80, lacks its unit.
const SMALLEST_SIZE: i64 = 1 << 20;
const LARGEST_SIZE: i64 = 1 << 60;
/// The most digits of a size before the point, and after it.
const MOST_SIZE_DIGITS: usize = 18;
const MOST_DECIMALS: usize = 9;
const A_NUMBER: &str = "write a number such as 1";

impl<'a> Reader<'a> {
    /// A reader that knows these names, or any.
    pub fn new(names: Option<&'a Names>) -> Self {
        Reader { faults: Vec::new(), names }
    }

    /// Record a fault.
    pub fn add(&mut self, at: &Place<'_>, diagnostic: Diagnostic) {
        self.faults.push(Fault::at(at, diagnostic));
    }

    fn refuse<T>(&mut self, at: &Place<'_>, diagnostic: Diagnostic) -> Option<T> {
        self.add(at, diagnostic);
        None
    }

    /// What a value of a kind says; `None` after its faults.
    pub fn read(&mut self, kind: &Kind, value: &Value, at: &Place<'_>) -> Option<Read> {
        match *kind {
            Kind::Count { least, most } => self.count(value, at, least, most).map(Read::Int),
            Kind::Number { least, most } => self.number(value, at, least, most).map(Read::Float),
            Kind::Switch => match switch(value) {
                Some(on) => Some(Read::Bool(on)),
                None => self.wrong_type(value, at, "true or false", "write true or false"),
            },
            Kind::Flag => match value {
                Value::Bool(on) => Some(Read::Bool(*on)),
                _ => self.wrong_type(value, at, "true or false", "write true or false"),
            },
            Kind::Text => self.text(value, at).map(Read::Text),
            Kind::Name => match self.text(value, at)? {
                text if text.is_empty() => {
                    let message = format!("{} is empty", at.named());
                    self.refuse(at, invalid(message, "write its text, or remove the key"))
                }
                text => Some(Read::Text(text)),
            },
            Kind::Host(marks) => self.host(value, at, marks).map(Read::Text),
            Kind::Ranks => self.ranks(value, at).map(Read::Ranks),
            Kind::Cpus => match cpus(value) {
                Some(found) => Some(Read::Ranks(found)),
                None => {
                    let message = format!("{} is not a list of CPUs", shown(value));
                    self.refuse(at, invalid(message, format!("write ranges such as 0-55,112-167, up to {MAX_CPU}")))
                }
            },
            Kind::CpuGroups => self.cpu_groups(value, at),
            Kind::PciAddress => match pci_address(text_of(value).unwrap_or_default()) {
                Some(address) => Some(Read::Text(address.into())),
                None => {
                    let message = format!("{} is not a PCI address", shown(value));
                    let help = "write domain, bus, device and function: \"0000:1b:00.0\"";
                    self.refuse(at, invalid(message, help))
                }
            },
            Kind::Distance => match text_of(value).filter(|text| DISTANCES.contains(text)) {
                Some(distance) => Some(Read::Text(distance.into())),
                None => {
                    let message = format!("{} is {}, which is unknown", at.named(), shown(value));
                    self.refuse(at, invalid(message, format!("use one of {}", DISTANCES.join(", "))))
                }
            },
            Kind::AcceleratorType => self.accelerator_type(value, at),
            Kind::AcceleratorId => self.accelerator_id(value, at),
            Kind::HardwareType => self.hardware_type(value, at),
            Kind::Word(words) => self.word(value, at, words).map(Read::Text),
            Kind::Fraction => self.fraction(value, at).map(Read::Float),
            Kind::Sizes(table) => self.sizes(value, at, table),
            Kind::SlotOrder => self.slot_order(value, at).map(Read::Text),
            Kind::Plain => Some(Read::Plain(value.clone())),
            Kind::OrNull(_) if *value == Value::Null => Some(Read::Null),
            Kind::OrNull(kind) => self.read(kind, value, at),
            Kind::Tuple(kinds) => self.tuple(value, at, kinds),
            Kind::List { of, empty } => self.list(value, at, of, empty),
            Kind::Map { keys, values } => self.map(value, at, keys, values),
            Kind::Record(table) => self.record(value, at, table).map(Read::Record),
            Kind::Label => self.label(value, at).map(Read::Text),
            Kind::AbsolutePath => self.absolute_path(value, at).map(Read::Text),
            Kind::Real { least, above, most } => self.real(value, at, least, above, most).map(Read::Float),
            Kind::Bytes => match bytes(value) {
                Some(size) => Some(Read::Int(size)),
                None => self.refuse(at, not_a_size(&at.named(), value)),
            },
            Kind::Own(read) => match read(value, at, self.names) {
                Ok(read) => Some(read),
                Err(faults) => {
                    self.faults.extend(faults);
                    None
                }
            },
            Kind::ListOr { of, or } => match value {
                Value::List(_) => self.list(value, at, of, true),
                _ => self.read(or, value, at),
            },
        }
    }

    /// Record that a value has the wrong type.
    fn wrong_type<T>(&mut self, value: &Value, at: &Place<'_>, allowed: &str, help: &str) -> Option<T> {
        self.refuse(at, must_be(&at.named(), value, allowed, help))
    }

    fn text(&mut self, value: &Value, at: &Place<'_>) -> Option<SmolStr> {
        match value {
            Value::Text(text) => Some(text.clone()),
            _ => self.wrong_type(value, at, "text", "write text; quote it if it looks like something else"),
        }
    }

    /// A name, or a whole number that is taken as one.
    fn label(&mut self, value: &Value, at: &Place<'_>) -> Option<SmolStr> {
        match value {
            Value::Int(number) => Some(number.text().into()),
            Value::Text(text) if all_printable(text) => Some(text.clone()),
            _ => {
                let message = format!("{} is not a label", shown(value));
                self.refuse(at, invalid(message, "write a name, e.g. a800; quote it if it looks like a number"))
            }
        }
    }

    fn absolute_path(&mut self, value: &Value, at: &Place<'_>) -> Option<SmolStr> {
        let Some(Read::Text(path)) = self.read(&Kind::Name, value, at) else { return None };
        if path.starts_with('/') && all_printable(&path) {
            return Some(path);
        }
        self.wrong_type(value, at, "an absolute path", "write the path on the node, e.g. /opt/venv/bin/python3")
    }

    fn real(&mut self, value: &Value, at: &Place<'_>, least: i64, above: bool, most: i64) -> Option<f64> {
        let number = match value {
            Value::Int(number) => number.value as f64,
            Value::Float(number) => number.value,
            Value::Text(text) => match text.trim().parse::<f64>() {
                Ok(number) if !number.is_nan() => number,
                _ => {
                    let help = if unresolved(value) { RESOLVE } else { "write a number" };
                    return self.wrong_type(value, at, "a number", help);
                }
            },
            Value::Bool(_) => return self.wrong_type(value, at, "a number", "write a number"),
            _ => return self.wrong_type(value, at, "a number", "write a number such as 0.5"),
        };
        if !number.is_finite() {
            return self.wrong_type(value, at, "a number below 1e308", A_NUMBER);
        }
        let limit = match number {
            _ if above && number <= least as f64 => format!("more than {least}"),
            _ if number < least as f64 => format!("{least} or more"),
            _ if number > most as f64 => format!("{most} or less"),
            _ => return Some(number),
        };
        self.wrong_type(value, at, &limit, &format!("use {limit}"))
    }

    fn count(&mut self, value: &Value, at: &Place<'_>, least: i64, most: i64) -> Option<i64> {
        let number = match value {
            Value::Int(number) => number.value,
            Value::Float(number) if number.value.is_finite() => match whole(number.value) {
                Some(whole) => whole,
                None => return self.wrong_type(value, at, "a whole number", A_NUMBER),
            },
            Value::Float(_) => return self.wrong_type(value, at, "a number below 1e308", A_NUMBER),
            Value::Text(digits) if is_digits(digits) => digits.parse().unwrap_or(i64::MAX),
            Value::Text(_) | Value::Bool(_) => {
                let help = if unresolved(value) { RESOLVE } else { A_NUMBER };
                return self.refuse(at, invalid(format!("{} is not a whole number", shown(value)), help));
            }
            _ => return self.wrong_type(value, at, "a whole number", A_NUMBER),
        };
        let limit = match number {
            _ if number > most => format!("{most} or less"),
            _ if number < least => format!("{least} or more"),
            _ => return Some(number),
        };
        self.wrong_type(value, at, &limit, &format!("use {limit}"))
    }

    fn number(&mut self, value: &Value, at: &Place<'_>, least: f64, most: f64) -> Option<f64> {
        let number = match value {
            Value::Int(number) => Some(number.value as f64),
            Value::Float(number) => Some(number.value),
            Value::Bool(on) => Some(f64::from(u8::from(*on))),
            Value::Text(text) => text.trim().parse().ok(),
            _ => None,
        };
        let Some(number) = number else { return self.wrong_type(value, at, "a number", "write a number such as 0.5") };
        let limit = match number {
            _ if number >= least && number <= most => return Some(number),
            _ if number < least => format!("{least:?} or more"),
            _ => format!("{most:?} or less"),
        };
        self.wrong_type(value, at, &limit, &format!("use {limit}"))
    }

    fn fraction(&mut self, value: &Value, at: &Place<'_>) -> Option<f64> {
        let number = self.number(value, at, f64::NEG_INFINITY, 1.0)?;
        if number > 0.0 {
            return Some(number);
        }
        self.wrong_type(value, at, "more than 0.0", "use more than 0.0")
    }

    fn word(&mut self, value: &Value, at: &Place<'_>, words: &[&str]) -> Option<SmolStr> {
        if let Some(word) = text_of(value).filter(|text| words.contains(text)) {
            return Some(word.into());
        }
        let help =
            if unresolved(value) { RESOLVE.to_owned() } else { did_you_mean(&as_word(value), words, "use one of") };
        self.wrong_type(value, at, &one_of(words), &help)
    }

    /// Sizes as a record, or as the text that states them.
    fn sizes(&mut self, value: &Value, at: &Place<'_>, table: &'static Table) -> Option<Read> {
        match value {
            Value::Map(_) => self.record(value, at, table).map(Read::Record),
            Value::Text(text) if !unresolved(value) => Some(Read::Text(text.clone())),
            _ => {
                let help = if unresolved(value) { RESOLVE } else { "write {tp: 4, pp: 2}, or text such as d4t2p1" };
                self.wrong_type(value, at, "a mapping of sizes", help)
            }
        }
    }

    fn slot_order(&mut self, value: &Value, at: &Place<'_>) -> Option<SmolStr> {
        let stated: Vec<_> = text_of(value).unwrap_or_default().split('-').collect();
        let missing: Vec<_> = SLOT_ORDER.into_iter().filter(|name| !stated.contains(name)).collect();
        if missing.is_empty() && stated.len() == SLOT_ORDER.len() {
            return Some(stated.join("-").into());
        }
        let known = stated.iter().all(|name| SLOT_ORDER.contains(name));
        let help = match known && !missing.is_empty() {
            true => format!("add {}", missing.join(", ")),
            false => format!("write {}", SLOT_ORDER.join("-")),
        };
        let message =
            format!("`order` is {}; it must name tp, cp, ep, dp and pp once each, fastest first", shown(value));
        self.refuse(at, invalid(message, help))
    }

    fn tuple(&mut self, value: &Value, at: &Place<'_>, kinds: &[Kind]) -> Option<Read> {
        let items = match value {
            Value::List(items) if items.len() == kinds.len() => items,
            _ => {
                let allowed = format!("a list of {} values", kinds.len());
                return self.wrong_type(value, at, &allowed, &format!("write {allowed}"));
            }
        };
        let read = |(index, (kind, item)): (usize, (&Kind, &Value))| self.read(kind, item, &at.index(index));
        let found: Vec<_> = kinds.iter().zip(items.iter()).enumerate().map(read).collect();
        found.into_iter().collect::<Option<_>>().map(Read::List)
    }

    /// A set of ranks; `None` after its fault.
    pub fn ranks(&mut self, value: &Value, at: &Place<'_>) -> Option<RankSet> {
        let outside = || invalid(format!("{} is not a set of ranks", shown(value)), beyond_ranks());
        match value {
            Value::Ranks(ranks) => Some(RankSet::clone(ranks)),
            Value::Int(number) => match u32::try_from(number.value).ok().filter(|&rank| rank <= MAX_RANK) {
                Some(rank) => Some(RankSet::from_iter([rank])),
                None => self.refuse(at, outside()),
            },
            Value::Text(text) => match parse_rank_set(text) {
                Ok(ranks) => Some(ranks),
                Err(diagnostic) => {
                    self.faults.push(Fault { path: at.path(), diagnostic, text: Some(text.to_string()) });
                    None
                }
            },
            Value::List(items) => {
                if let Some(odd) = items.iter().find(|item| !matches!(item, Value::Int(_))) {
                    return self.refuse(at, not_a_rank(items, odd));
                }
                let ranks = items.iter().map(|item| match item {
                    Value::Int(number) => u32::try_from(number.value).ok().filter(|&rank| rank <= MAX_RANK),
                    _ => None,
                });
                match ranks.collect::<Option<Vec<_>>>() {
                    Some(ranks) => Some(ranks.into_iter().collect()),
                    None => self.refuse(at, outside()),
                }
            }
            Value::Other(other) if other.text.is_some() => {
                let text = other.text.clone().unwrap_or_default();
                let diagnostic = lone_surrogate(&text);
                self.faults.push(Fault { path: at.path(), diagnostic, text: Some(text) });
                None
            }
            _ => {
                let message = format!("{} is not a set of ranks", shown(value));
                self.refuse(at, invalid(message, "write a range such as 0-7, an int, or a list of ints"))
            }
        }
    }

    fn cpu_groups(&mut self, value: &Value, at: &Place<'_>) -> Option<Read> {
        let alone = [value.clone()];
        let items = if let Value::List(items) = value { &items[..] } else { &alone };
        let before = self.faults.len();
        let mut groups = Vec::new();
        for (index, item) in items.iter().enumerate() {
            let found = match item {
                Value::Ranks(cpus) => Some(vec![RankSet::clone(cpus)]),
                Value::Int(number) => parse_groups(&number.text()),
                _ => text_of(item).and_then(parse_groups),
            };
            match found {
                Some(found) => groups.extend(found.into_iter().map(Read::Ranks)),
                None => {
                    let message = format!("{} is not a group of CPUs", shown(item));
                    let help = "write CPUs such as 0,112, or `0,112 x56` for 56 groups that each start one higher";
                    self.add(&at.index(index), invalid(message, help));
                }
            }
        }
        (self.faults.len() == before).then_some(Read::List(groups))
    }

    fn accelerator_type(&mut self, value: &Value, at: &Place<'_>) -> Option<Read> {
        let name = self.text(value, at)?;
        let Some(names) = self.names.filter(|names| !names.accelerators.iter().any(|known| *known == name)) else {
            return Some(Read::Text(name));
        };
        let known: Vec<_> = names.accelerators.iter().map(String::as_str).collect();
        let mut help = did_you_mean(&name, &known, "use one of");
        if !help.ends_with('?') {
            help.push_str("; write the name of a model (H100) in `accelerator_model`; a type of your own: rankplan.register_accelerator");
        }
        self.refuse(at, invalid(format!("unknown accelerator_type `{name}`"), help))
    }

    fn accelerator_id(&mut self, value: &Value, at: &Place<'_>) -> Option<Read> {
        let id = match value {
            Value::Int(number) => number.text().into(),
            _ => self.text(value, at)?,
        };
        if id.is_empty() || id.contains(',') || !all_printable(&id) {
            let message = format!("{} is not an accelerator id", quoted(&id));
            return self.refuse(at, invalid(message, "write ids such as 0 or GPU-5c89, without commas"));
        }
        Some(Read::Text(id))
    }

    /// A name that launchers write into scripts and options: no shell may take it for code, no program for an option.
    fn host(&mut self, value: &Value, at: &Place<'_>, marks: &str) -> Option<SmolStr> {
        let name = self.text(value, at)?;
        let allowed = |letter: u8| letter.is_ascii_alphanumeric() || marks.as_bytes().contains(&letter);
        if name.bytes().all(allowed) && !name.starts_with('-') {
            return Some(name);
        }
        let marks = marks.chars().map(String::from).collect::<Vec<_>>().join(" ");
        let rule = format!("ASCII letters, digits and {marks} only, and not start with -");
        let message = format!("{} is {}; it must have {rule}", at.named(), shown(value));
        self.refuse(at, invalid(message, "write the name of one node, as DNS has it, or its address"))
    }

    fn hardware_type(&mut self, value: &Value, at: &Place<'_>) -> Option<Read> {
        let name = self.text(value, at)?;
        match self.names.and_then(|names| hardware_type_fault(&name, names)) {
            Some(fault) => self.refuse(at, fault),
            None => Some(Read::Text(name)),
        }
    }

    fn list(&mut self, value: &Value, at: &Place<'_>, of: &Kind, empty: bool) -> Option<Read> {
        let Value::List(items) = value else {
            return self.wrong_type(value, at, "a list", "write a list: one `- ...` per line, or [a, b]");
        };
        if items.is_empty() && !empty {
            return self.refuse(at, invalid(format!("{} is empty", at.named()), "list at least one"));
        }
        let found: Vec<_> =
            items.iter().enumerate().map(|(index, item)| self.read(of, item, &at.index(index))).collect();
        found.into_iter().collect::<Option<_>>().map(Read::List)
    }

    fn map(&mut self, value: &Value, at: &Place<'_>, keys: &Kind, values: &Kind) -> Option<Read> {
        let Value::Map(pairs) = value else { return self.wrong_type(value, at, "a mapping", "write keys and values") };
        let before = self.faults.len();
        let mut found: Vec<(Read, Read)> = Vec::with_capacity(pairs.len());
        for (key, item) in pairs.iter() {
            let at = at.key(key);
            let (key, item) = (self.read(keys, key, &at), self.read(values, item, &at));
            let (Some(key), Some(item)) = (key, item) else { continue };
            match found.iter_mut().find(|(known, _)| *known == key) {
                Some((_, known)) => *known = item,
                None => found.push((key, item)),
            }
        }
        (self.faults.len() == before).then_some(Read::Map(found))
    }

    /// The fields of a mapping; `None` after faults.
    pub fn record(&mut self, value: &Value, at: &Place<'_>, table: &'static Table) -> Option<Record> {
        let Value::Map(pairs) = value else {
            let keys = format!("write keys and values: {}", table.names().join(", "));
            let named = at.named();
            let (name, help) = table.called.unwrap_or((&named, &keys));
            return self.refuse(at, must_be(name, value, "a mapping", help));
        };
        let before = self.faults.len();
        let mut record = Record(Vec::with_capacity(pairs.len()));
        let mut values: Vec<Option<&Value>> = vec![None; table.fields().count()];
        let mut unknown = Vec::new();
        for (key, item) in pairs.iter() {
            match text_of(key).and_then(|name| table.fields().position(|field| field.name == name)) {
                Some(index) => values[index] = values[index].or(Some(item)),
                None => unknown.push((key, item)),
            }
        }
        for (field, value) in table.fields().zip(values) {
            let stated = value.filter(|value| !counts_as_missing(field, value));
            match stated {
                Some(stated) => record
                    .0
                    .extend(self.read(&field.kind, stated, &at.name(field.name)).map(|found| (field.name, found))),
                None if field.absent == Absent::Never => self.missing(field.name, pairs, at, table),
                None => {}
            }
        }
        for (key, item) in unknown {
            self.refuse_key(key, item, at, table);
        }
        if self.faults.len() == before
            && let Some(fault) = table.check.and_then(|check| check(&record))
        {
            self.add(at, fault);
        }
        (self.faults.len() == before).then_some(record)
    }

    /// Record that a key is missing, unless a similar one is there: that is a fault of its own.
    fn missing(&mut self, name: &str, pairs: &[(Value, Value)], at: &Place<'_>, table: &'static Table) {
        let others = pairs.iter().filter_map(|(key, _)| text_of(key)).filter(|key| table.field(key).is_none());
        if nearest(name, others, CLOSE).is_none() {
            let help = format!("add `{name}:` with its value");
            self.add(at, Diagnostic::new(Code::MissingKey, format!("`{name}` is missing")).help(help));
        }
    }

    /// Record a key that no field has.
    fn refuse_key(&mut self, key: &Value, item: &Value, at: &Place<'_>, table: &'static Table) {
        let inner = at.key(key);
        let Some(name) = text_of(key) else {
            let message = format!("{} is {}, which is invalid", inner.named(), shown(key));
            return self.add(&inner, invalid(message, "keys should be strings"));
        };
        let cut = *item == Value::Null && !name.is_empty() && name.chars().all(in_placements);
        let help = if cut { CUT.to_owned() } else { did_you_mean(name, &table.names(), "use one of") };
        self.add(&inner, Diagnostic::new(Code::UnknownKey, format!("unknown key `{name}`")).help(help));
    }
}

/// Whether a character may be part of a placement between two commas.
fn in_placements(letter: char) -> bool {
    letter.is_ascii_digit() || matches!(letter, ':' | ' ' | '-')
}

fn counts_as_missing(field: &Field, value: &Value) -> bool {
    match field.absent {
        Absent::Never | Absent::Missing => false,
        Absent::Null => *value == Value::Null,
        Absent::Empty => *value == Value::Null || text_of(value) == Some(""),
    }
}

/// The fault of a value: `NAME is VALUE; it must be ALLOWED`.
pub fn must_be(name: &str, value: &Value, allowed: &str, help: &str) -> Diagnostic {
    invalid(format!("{name} is {}; it must be {allowed}", shown(value)), help)
}

/// A fault of a value.
pub fn invalid(message: String, help: impl Into<String>) -> Diagnostic {
    Diagnostic::new(Code::InvalidValue, message).help(help)
}

/// The fault of a name that is no type of hardware besides accelerators.
pub fn hardware_type_fault(name: &str, names: &Names) -> Option<Diagnostic> {
    if name.trim().is_empty() || !all_printable(name) {
        let message = format!("{} is not a hardware type", shown(&Value::from(name)));
        return Some(invalid(message, "write a name, e.g. Franka"));
    }
    let folded = name.to_lowercase();
    let near: Vec<_> =
        names.hardware.iter().filter(|known| known.to_lowercase() == folded).map(String::as_str).collect();
    if !near.is_empty() && !near.contains(&name) {
        let help = did_you_mean(name, &near, "use one of");
        return Some(invalid(format!("unknown hardware type `{name}`"), help));
    }
    let counted = [ResourceKind::ACCELERATOR, ResourceKind::NODE].contains(&name);
    if counted || names.accelerators.iter().any(|known| known == name) {
        let message = format!("hardware type `{name}` cannot be configured: rankplan detects accelerators itself");
        return Some(invalid(message, "remove `hardware` to place on them, or choose another name"));
    }
    None
}

fn beyond_ranks() -> String {
    format!("ranks count from 0, up to {MAX_RANK}")
}

/// The fault of an item that is no rank in a list of ranks.
fn not_a_rank(items: &[Value], odd: &Value) -> Diagnostic {
    let mut help = "write a list of ints, or a range such as 0-7".to_owned();
    if items.iter().filter(|item| !matches!(item, Value::Int(_))).all(|item| text_of(item).is_some()) {
        let texts = items.iter().map(|item| match item {
            Value::Int(number) => number.text(),
            other => text_of(other).unwrap_or_default().to_owned(),
        });
        let joined: Vec<_> = texts.collect();
        help.push_str(&format!("; a list of ranges is one text: {}", joined.join(",")));
    }
    invalid(format!("{} is not a rank", shown(odd)), help)
}

/// The fault of a text with lone surrogates, which are replaced in it.
pub fn lone_surrogate(text: &str) -> Diagnostic {
    let at = text.find(char::REPLACEMENT_CHARACTER).unwrap_or(0);
    Diagnostic::new(Code::Syntax, "the text contains a lone surrogate, which is not a character")
        .help("write ranks with the ASCII digits 0-9")
        .label(at..at + char::REPLACEMENT_CHARACTER.len_utf8(), "")
}

/// Words as messages list them: `own, node or own-first`.
pub fn one_of(words: &[&str]) -> String {
    match words {
        [first @ .., last] if !first.is_empty() => format!("{} or {last}", first.join(", ")),
        _ => words.concat(),
    }
}

/// The bytes that a value states: a whole number, or a number and a unit.
pub fn bytes(value: &Value) -> Option<i64> {
    let size = match value {
        Value::Int(number) => number.value,
        Value::Text(text) => size_of(text)?,
        _ => return None,
    };
    (SMALLEST_SIZE..=LARGEST_SIZE).contains(&size).then_some(size)
}

/// The bytes of a text such as `80 GiB` or `1.5TB`.
fn size_of(text: &str) -> Option<i64> {
    let text = text.trim();
    let (number, unit) = text.split_at(text.find(|letter: char| !in_number(letter)).unwrap_or(text.len()));
    let (whole, part) = number.split_once('.').map_or((number, None), |(whole, part)| (whole, Some(part)));
    let part_fits = part.is_none_or(|part| (1..=MOST_DECIMALS).contains(&part.len()) && !part.contains('.'));
    if !(1..=MOST_SIZE_DIGITS).contains(&whole.len()) || !part_fits {
        return None;
    }
    let unit = unit.trim_start().to_ascii_uppercase();
    let scale = match unit.as_str() {
        "" | "B" => 1.0,
        _ => {
            let power = 1 + "KMGTP".find(unit.chars().next()?)?;
            let base: f64 = match &unit[1..] {
                "IB" | "I" => 1024.0,
                "B" => 1000.0,
                _ => return None,
            };
            base.powi(power as i32)
        }
    };
    Some((number.parse::<f64>().ok()? * scale) as i64)
}

fn in_number(letter: char) -> bool {
    letter.is_ascii_digit() || letter == '.'
}

/// The fault of a value that states no bytes.
pub fn not_a_size(name: &str, value: &Value) -> Diagnostic {
    let help = if unresolved(value) { RESOLVE } else { "write a number and a unit, such as 80 GiB" };
    must_be(name, value, "a size from 1 MiB to 1 EiB", help)
}

/// A whole number, or a text of at most nine digits.
pub fn whole_number(value: &Value) -> Option<i64> {
    match value {
        Value::Int(number) => Some(number.value),
        Value::Text(text) if text.len() <= 9 && is_digits(text) => text.parse().ok(),
        _ => None,
    }
}

/// A value as a word that may be misspelt: Python's name of it.
pub fn as_word(value: &Value) -> String {
    match value {
        Value::Text(text) => text.to_string(),
        Value::Null => "None".to_owned(),
        Value::Bool(true) => "True".to_owned(),
        Value::Bool(false) => "False".to_owned(),
        other => shown(other),
    }
}

fn text_of(value: &Value) -> Option<&str> {
    match value {
        Value::Text(text) => Some(text),
        _ => None,
    }
}

/// Whether a value is a text with an interpolation in it.
pub fn unresolved(value: &Value) -> bool {
    text_of(value).is_some_and(|text| text.contains("${"))
}

fn is_digits(text: &str) -> bool {
    (1..=MOST_DIGITS).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit())
}

/// A real number as the whole number that it is, if it is one.
fn whole(number: f64) -> Option<i64> {
    let limit = 2_f64.powi(63);
    (number.fract() == 0.0 && number >= -limit && number < limit).then_some(number as i64)
}

/// True or false, as people write them.
fn switch(value: &Value) -> Option<bool> {
    match value {
        Value::Bool(on) => Some(*on),
        Value::Int(number) if number.value == 0 || number.value == 1 => Some(number.value == 1),
        Value::Float(number) if number.value == 0.0 || number.value == 1.0 => Some(number.value == 1.0),
        Value::Text(text) => match text.to_ascii_lowercase().as_str() {
            "1" | "on" | "t" | "true" | "y" | "yes" => Some(true),
            "0" | "off" | "f" | "false" | "n" | "no" => Some(false),
            _ => None,
        },
        _ => None,
    }
}

fn cpus(value: &Value) -> Option<RankSet> {
    match value {
        Value::Ranks(cpus) => Some(RankSet::clone(cpus)),
        Value::Int(number) => cpu_list(&number.text()),
        _ => cpu_list(text_of(value)?),
    }
}
