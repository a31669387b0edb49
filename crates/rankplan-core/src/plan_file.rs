//! The content of the file of a plan, and its text.

use crate::actors::{Actors, actors_value};
use crate::assign::Rule;
use crate::inventory::Inventory;
use crate::plan_reader::{COMPONENT, JOB, VERSION};
use crate::read::json::{Keys, write_json, write_text};
use crate::read::value::Value;
use crate::request_file::requests_value;
use crate::requests::Requests;

/// The parts of a plan but for its components.
#[derive(Debug)]
pub struct Parts<'a> {
    /// The nodes.
    pub inventory: &'a Inventory,
    /// The levels of the network that the inventory states.
    pub levels: Option<&'a [String]>,
    /// The cluster section, or null.
    pub cluster: Value,
    /// The name of the placement mode.
    pub mode: Option<&'a str>,
    /// The dialect of the trainer's config.
    pub dialect: Option<&'a str>,
    /// The requests.
    pub requests: &'a Requests,
    /// What its job states besides, or null.
    pub job: Value,
    /// What the trainer's actors outside these groups hold.
    pub actors: &'a [Actors],
}

/// The content of a file: the parts of a plan, and its components by name.
pub fn content(parts: Parts<'_>, components: Vec<(String, Value)>) -> Value {
    let texts = |texts: &[String]| Value::list(texts.iter().map(|text| Value::from(text.as_str())));
    let levels = parts.levels.map(|levels| ("levels", texts(levels)));
    let inventory = Value::map(levels.into_iter().chain([("nodes", parts.inventory.described())]));
    let requests = Some(requests_value(parts.requests)).filter(|requests| !requests.is_empty());
    let components = components.into_iter().map(|(name, component)| (name.into(), component)).collect();
    let fields = [
        ("rankplan", Some(Value::from(VERSION))),
        ("inventory", Some(inventory)),
        ("cluster", Some(parts.cluster)),
        ("mode", parts.mode.map(Value::from)),
        ("dialect", parts.dialect.map(Value::from)),
        ("requests", requests),
        (JOB, Some(parts.job).filter(|job| *job != Value::Null)),
        ("actors", Some(actors_value(parts.actors)).filter(|actors| !actors.is_empty())),
        (COMPONENTS, Some(Value::Map(components))),
    ];
    Value::map(fields.into_iter().filter_map(|(key, field)| Some((key, field?))))
}

const COMPONENTS: &str = "components";

/// A component: its place, the settings that it states, and the components beside it, by the fields of their table.
pub fn component(placed: Value, settings: &Value, beside: Vec<(String, Value)>) -> Value {
    let beside = Value::Map(beside.into_iter().map(|(name, placed)| (name.into(), placed)).collect());
    let stated = |name: &'static str| {
        let value = match name {
            "beside" => Some(&beside).filter(|beside| !beside.is_empty()),
            _ => placed.get(name).or_else(|| settings.get(name)),
        };
        value.map(|value| (name, value.clone()))
    };
    Value::map(COMPONENT.fields().filter_map(|field| stated(field.name)))
}

/// Where processes are: node groups, and a rule.
pub fn placed(node_groups: Vec<String>, rule: Value) -> Value {
    Value::map([("node_groups", Value::list(node_groups.into_iter().map(Value::from))), ("rule", rule)])
}

impl Rule<'_> {
    /// The rule as a plain value.
    pub fn value(self) -> Value {
        match self {
            Rule::Map(map) => Value::map([("map", Value::from(map.to_string()))]),
            Rule::Chunks(chunks) => {
                let size = Some(chunks.per_process()).filter(|&size| size != 1);
                let size = size.map(|size| ("per_process", Value::from(size)));
                Value::map([("chunks", Value::from(chunks.to_string()))].into_iter().chain(size))
            }
            Rule::Packed(packed) => {
                let range = packed.range();
                let numbers = [range.first(), range.last(), packed.per_process(), packed.stride()];
                Value::map([("packed", Value::list(numbers.map(Value::from)))])
            }
        }
    }
}

/// A content as text, a component in each line. Equal plans give equal texts.
pub fn text(content: &Value) -> String {
    let Value::Map(parts) = content else { return String::new() };
    let mut text = String::from("{\n");
    for (index, (key, part)) in parts.iter().enumerate() {
        text.push_str(if index > 0 { ",\n" } else { "" });
        write_json(key, Keys::Sorted, &mut text);
        text.push_str(": ");
        match part {
            Value::Map(components) if *key == Value::from(COMPONENTS) => write_components(components, &mut text),
            part => write_json(part, Keys::Sorted, &mut text),
        }
    }
    text.push_str("\n}\n");
    text
}

fn write_components(components: &[(Value, Value)], text: &mut String) {
    text.push_str("{\n");
    for (index, (name, component)) in components.iter().enumerate() {
        text.push_str(if index > 0 { ",\n  " } else { "  " });
        match name {
            Value::Text(name) => write_text(name, text),
            other => write_json(other, Keys::Sorted, text),
        }
        text.push_str(": ");
        write_json(component, Keys::AsStated, text);
    }
    text.push_str("\n}");
}
