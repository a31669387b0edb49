//! What a trainer's actors outside its placement groups hold.

use crate::amounts::{self, Amounts};
use crate::ids::MAX_PROCESSES;
use crate::read::place::Place;
use crate::read::reader::{Reader, must_be};
use crate::read::record::{Read, Record};
use crate::read::table::{Absent, Field, Kind, Table};
use crate::read::value::Value;

/// Equal actors that no placement group holds.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Actors {
    /// What they are.
    pub name: String,
    /// How many there are, or how many on each node.
    pub count: u32,
    /// Whether each node in use has so many.
    pub each_node: bool,
    /// The component whose processes they belong to: so many are on the node of each of its processes.
    pub component: Option<String>,
    /// Whether they end soon.
    pub brief: bool,
    /// What each reserves.
    pub amounts: Amounts,
}

/// The fields of equal actors.
pub static ACTORS: Table = Table {
    called: None,
    groups: &[
        &[
            Field::new("name", Kind::Name, "What they are.").absent(Absent::Never),
            Field::new("count", Kind::Count { least: 1, most: MAX_PROCESSES as i64 }, "Their number, 1 by default."),
            Field::new("each_node", Kind::Switch, "Whether each node that has any of it has so many."),
            Field::new(
                "component",
                Kind::Name,
                "The component that has so many with each of its processes, on the node of that process.",
            ),
            Field::new("brief", Kind::Switch, "Whether they end soon."),
        ],
        amounts::FIELDS,
    ],
    check: None,
};

/// The actors at a place.
pub fn read_actors(reader: &mut Reader<'_>, value: &Value, at: &Place<'_>) -> Vec<Actors> {
    let Value::List(items) = value else {
        reader.add(at, must_be("`actors`", value, "a list", ""));
        return Vec::new();
    };
    let records = items.iter().enumerate().map(|(index, item)| reader.record(item, &at.index(index), &ACTORS));
    records.collect::<Vec<_>>().into_iter().flatten().map(actors_of).collect()
}

fn actors_of(mut record: Record) -> Actors {
    Actors {
        name: record.take("name").map(Read::into_text).unwrap_or_default(),
        count: record.take("count").map_or(1, |count| count.into_int() as u32),
        each_node: record.take("each_node").is_some_and(Read::into_bool),
        component: record.take("component").map(Read::into_text),
        brief: record.take("brief").is_some_and(Read::into_bool),
        amounts: Amounts::take(&mut record),
    }
}

/// Actors as plain values.
pub fn actors_value(actors: &[Actors]) -> Value {
    Value::list(actors.iter().map(|actors| {
        let fields = [
            ("name", Some(Value::from(actors.name.as_str()))),
            ("count", (actors.count != 1).then(|| Value::from(actors.count))),
            ("each_node", actors.each_node.then_some(Value::Bool(true))),
            ("component", actors.component.as_deref().map(Value::from)),
            ("brief", actors.brief.then_some(Value::Bool(true))),
        ];
        let fields = fields.into_iter().filter_map(|(name, field)| Some((name, field?)));
        Value::map(fields.chain(actors.amounts.values()))
    }))
}
