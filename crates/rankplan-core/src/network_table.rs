//! The network of a cluster: its levels, and what must, or should, be within them.

use crate::diagnostic::{Code, Diagnostic};
use crate::ids::MAX_NODES;
use crate::node_reader::read_levels;
use crate::read::names::Names;
use crate::read::place::{Fault, Place};
use crate::read::reader::{RESOLVE, Reader, as_word, invalid, must_be, unresolved, whole_number};
use crate::read::record::Read;
use crate::read::spelling::did_you_mean;
use crate::read::table::{Absent, Field, Kind, Table};
use crate::read::value::Value;

/// The fields of `topology`.
pub static TOPOLOGY: Table = Table {
    called: None,
    groups: &[&[
        Field::new(
            "levels",
            Kind::Own(levels),
            "Keys of node labels, outermost first, e.g. [block, nvlink]; detected by default.",
        )
        .absent(Absent::Null),
        Field::new(
            "order",
            Kind::Word(&["address", "topology"]),
            "How nodes without ranks are ordered: address, or topology for domain after domain.",
        ),
        Field::new(
            "keep",
            Kind::Own(keep),
            "Levels that groups must stay within, by component and kind: {actor: {tp: node, ep: nvlink}}; world means all \
             nodes of a component, {nvlink: 2} two domains with equal shares.",
        ),
        Field::new(
            "segment",
            Kind::Own(segment),
            "Number of nodes that must be in one domain together; by component: {policy: 4, generation: 2}; by level too: \
             {policy: {block: 16, nvlink: 8}}.",
        )
        .absent(Absent::Null),
        Field::new(
            "prefer",
            Kind::Own(prefer),
            "Levels that groups should stay within, as in keep; never refuses: {actor: {world: nvlink}}.",
        ),
        Field::new(
            "balance",
            Kind::Own(balance),
            "Level whose domains in use get shares as equal as possible, for all or by component.",
        ),
        Field::new("cap", Kind::Own(cap), "Most nodes of a domain that may be in use, by level: {nvlink: 16}."),
    ]],
    check: None,
};

/// The kinds of parallel groups, and all nodes of a component.
const KEPT_KINDS: [&str; 10] = ["tp", "cp", "dp", "fsdp", "replica", "pp", "etp", "ep", "edp", WORLD];
const WORLD: &str = "world";
/// Joins the components whose nodes `world` means together.
const TOGETHER: char = '+';

/// The faults of the values below a key, as far as these were read.
#[derive(Default)]
struct Values {
    faults: Vec<Fault>,
}

impl Values {
    fn add(&mut self, value: &Value, at: &Place<'_>, fault: Diagnostic) {
        let fault = if unresolved(value) { fault.help(RESOLVE) } else { fault };
        self.faults.push(Fault::at(at, fault));
    }

    /// A number of nodes or domains.
    fn size(&mut self, name: &str, value: &Value, at: &Place<'_>, help: &str) -> Value {
        let size = whole_number(value).filter(|size| (1..=i64::from(MAX_NODES)).contains(size));
        if size.is_none() {
            self.add(value, at, must_be(&format!("`{name}`"), value, "a whole number of 1 or more", help));
        }
        Value::from(size.unwrap_or(1))
    }

    /// Numbers of nodes or domains by level.
    fn sizes(&mut self, pairs: &[(Value, Value)], at: &Place<'_>, help: &str) -> Value {
        let size = |(level, size): &(Value, Value)| {
            let level = as_word(level);
            let size = self.size(&level, size, &at.name(&level), help);
            (Value::from(level), size)
        };
        Value::Map(pairs.iter().map(size).collect())
    }

    /// The name of a level. Whether the nodes have it is checked elsewhere.
    fn level(&mut self, name: &str, value: &Value, at: &Place<'_>, help: &str) -> Value {
        match value {
            Value::Text(level) if !level.trim().is_empty() && !unresolved(value) => value.clone(),
            _ => {
                self.add(value, at, must_be(&format!("`{name}`"), value, "a level", help));
                Value::Null
            }
        }
    }

    fn finish(self, value: Value) -> Result<Read, Vec<Fault>> {
        if self.faults.is_empty() { Ok(Read::Plain(value)) } else { Err(self.faults) }
    }
}

fn levels(value: &Value, at: &Place<'_>, _names: Option<&Names>) -> Result<Read, Vec<Fault>> {
    let mut reader = Reader::new(None);
    match read_levels(&mut reader, value, at) {
        Some(levels) => Ok(Read::List(levels.into_iter().map(|level| Read::Text(level.into())).collect())),
        None => Err(reader.faults),
    }
}

fn segment(value: &Value, at: &Place<'_>, _names: Option<&Names>) -> Result<Read, Vec<Fault>> {
    const HELP: &str = "write the number of nodes of a segment, by component, or by level too";
    let mut values = Values::default();
    let Value::Map(pairs) = value else {
        let size = values.size("segment", value, at, HELP);
        return values.finish(size);
    };
    let mut sizes = Vec::with_capacity(pairs.len());
    for (name, size) in pairs.iter() {
        let name = as_word(name);
        let at = at.name(&name);
        let size = match size {
            Value::Map(levels) if !levels.is_empty() => values.sizes(levels, &at, HELP),
            _ => values.size(&name, size, &at, HELP),
        };
        sizes.push((Value::from(name), size));
    }
    values.finish(Value::Map(sizes.into()))
}

fn keep(value: &Value, at: &Place<'_>, _names: Option<&Names>) -> Result<Read, Vec<Fault>> {
    kept_levels(value, at, true)
}

fn prefer(value: &Value, at: &Place<'_>, _names: Option<&Names>) -> Result<Read, Vec<Fault>> {
    kept_levels(value, at, false)
}

/// Levels by component and kind of group; with `counts`, a level may limit the domains that a group is divided over.
fn kept_levels(value: &Value, at: &Place<'_>, counts: bool) -> Result<Read, Vec<Fault>> {
    let Value::Map(pairs) = value else { return Err(vec![not_a_mapping(value, at)]) };
    let mut values = Values::default();
    let mut components = Vec::with_capacity(pairs.len());
    for (component, kinds) in pairs.iter() {
        let component = as_word(component);
        let at = at.name(&component);
        let Value::Map(kinds) = kinds else {
            let allowed = "a mapping of kinds of groups to levels";
            let fault = must_be(&format!("`{component}`"), kinds, allowed, "write {tp: node}, for example");
            values.add(kinds, &at, fault);
            continue;
        };
        let levels: Vec<_> =
            kinds.iter().filter_map(|(kind, level)| values.kept_level(&component, kind, level, &at, counts)).collect();
        if !levels.is_empty() {
            components.push((Value::from(component), Value::Map(levels.into())));
        }
    }
    values.finish(Value::Map(components.into()))
}

impl Values {
    /// A kind of group of a component, and the level that it is kept within.
    fn kept_level(
        &mut self,
        component: &str,
        kind: &Value,
        level: &Value,
        at: &Place<'_>,
        counts: bool,
    ) -> Option<(Value, Value)> {
        let name = as_word(kind);
        let at = at.name(&name);
        let known = matches!(kind, Value::Text(kind) if KEPT_KINDS.contains(&kind.as_str()));
        if !known {
            self.add(kind, &at, unknown_kind(&name));
            return None;
        }
        if component.contains(TOGETHER) && name != WORLD {
            let message = format!("`{TOGETHER}` joins components for `{WORLD}` only, not for {name}");
            self.add(kind, &at, invalid(message, format!("write `{WORLD}`, or name one component")));
            return None;
        }
        let level = match level {
            Value::Map(levels) if counts && !levels.is_empty() => {
                self.sizes(levels, &at, "write the most domains that each group may be divided over: {nvlink: 2}")
            }
            _ if counts => self.level(&name, level, &at, "write a level: nvlink, or {nvlink: 2} for two domains"),
            _ => self.level(&name, level, &at, "write a level: nvlink"),
        };
        Some((Value::from(name), level))
    }
}

fn balance(value: &Value, at: &Place<'_>, _names: Option<&Names>) -> Result<Read, Vec<Fault>> {
    const HELP: &str = "write a level: nvlink, or by component: {actor: nvlink}";
    let mut values = Values::default();
    let levels = match value {
        Value::Map(pairs) => {
            let level = |(name, level): &(Value, Value)| {
                let name = as_word(name);
                let level = values.level(&name, level, &at.name(&name), HELP);
                (Value::from(name), level)
            };
            Value::Map(pairs.iter().map(level).collect())
        }
        _ => values.level("balance", value, at, HELP),
    };
    values.finish(levels)
}

fn cap(value: &Value, at: &Place<'_>, _names: Option<&Names>) -> Result<Read, Vec<Fault>> {
    let Value::Map(pairs) = value else { return Err(vec![not_a_mapping(value, at)]) };
    let mut values = Values::default();
    let sizes = values.sizes(pairs, at, "write the most nodes in use of a domain: {nvlink: 16}");
    values.finish(sizes)
}

fn not_a_mapping(value: &Value, at: &Place<'_>) -> Fault {
    Fault::at(at, must_be(&at.named(), value, "a mapping", "write keys and values"))
}

fn unknown_kind(name: &str) -> Diagnostic {
    let help = did_you_mean(name, &KEPT_KINDS, "use one of");
    Diagnostic::new(Code::UnknownKey, format!("unknown kind of group `{name}`")).help(help)
}
