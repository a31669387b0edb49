//! CPUs, host memory and custom resources: what can be reserved on a node, or what a bundle reserves there.

use crate::pairs::Pairs;
use crate::read::record::{Read, Record};
use crate::read::table::{Field, Kind};
use crate::read::value::Value;

/// A number of ten-thousandths, Ray's own unit: sums of them are exact.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Amount(pub u64);

const UNIT: f64 = 10_000.0;
/// The largest amount that is read.
const MOST: f64 = 1_000_000_000.0;
/// The largest memory that is read, in MiB.
const MOST_MEMORY: i64 = 1 << 40;

impl Amount {
    /// The nearest amount to a number; 0 for one below it.
    pub fn new(number: f64) -> Self {
        Amount((number.clamp(0.0, MOST) * UNIT).round() as u64)
    }

    /// The number.
    pub fn number(self) -> f64 {
        self.0 as f64 / UNIT
    }

    /// The number as a plain value, whole if it can be.
    pub fn value(self) -> Value {
        let unit = UNIT as u64;
        if self.0.is_multiple_of(unit) { Value::from((self.0 / unit) as i64) } else { Value::from(self.number()) }
    }
}

/// Amounts of a node or of a bundle. What is `None`, or no key, is unknown.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Amounts {
    /// CPUs.
    pub cpus: Option<Amount>,
    /// MiB of host memory.
    pub memory: Option<u64>,
    /// Custom resources, by name.
    pub custom: Pairs<String, Amount>,
}

/// The kinds of the fields of amounts.
pub const NUMBER: Kind = Kind::Number { least: 0.0, most: MOST };
/// MiB.
pub const MEMORY: Kind = Kind::Count { least: 0, most: MOST_MEMORY };
/// By name.
pub const CUSTOM: Kind = Kind::Map { keys: &Kind::Name, values: &NUMBER };

/// The fields of what a bundle, or an actor, reserves.
pub const FIELDS: &[Field] = &[
    Field::new("cpus", NUMBER, "CPUs."),
    Field::new("memory", MEMORY, "MiB of host memory."),
    Field::new("resources", CUSTOM, "Amounts of custom resources, by name."),
];

impl Amounts {
    /// Whether nothing is known.
    pub fn is_empty(&self) -> bool {
        self.cpus.is_none() && self.memory.is_none() && self.custom.is_empty()
    }

    /// Take the fields of amounts out of a record.
    pub fn take(record: &mut Record) -> Self {
        Amounts {
            cpus: record.take("cpus").map(|cpus| Amount::new(cpus.into_float())),
            memory: record.take("memory").map(|memory| memory.into_int() as u64),
            custom: record.take("resources").map(custom).unwrap_or_default(),
        }
    }

    /// The known amounts as plain values, under the names of [`FIELDS`].
    pub fn values(&self) -> Vec<(&'static str, Value)> {
        self.named(["cpus", "memory", "resources"])
    }

    /// The known amounts as plain values, under these names.
    pub fn named(&self, names: [&'static str; 3]) -> Vec<(&'static str, Value)> {
        let amounts = [
            self.cpus.map(Amount::value),
            self.memory.map(|memory| Value::from(memory as i64)),
            (!self.custom.is_empty()).then(|| custom_value(&self.custom)),
        ];
        names.into_iter().zip(amounts).filter_map(|(name, amount)| Some((name, amount?))).collect()
    }
}

/// Custom resources that were read.
pub fn custom(read: Read) -> Pairs<String, Amount> {
    let amounts = read.into_map().into_iter();
    amounts.map(|(name, amount)| (name.into_text(), Amount::new(amount.into_float()))).collect()
}

/// Custom resources as a plain value.
pub fn custom_value(custom: &Pairs<String, Amount>) -> Value {
    Value::map(custom.iter().map(|(name, amount)| (name.as_str(), amount.value())))
}

#[cfg(test)]
mod tests {
    use super::Amount;
    use crate::read::value::Value;

    #[test]
    fn amounts_are_ten_thousandths() {
        for (number, expected) in [(0.2, 2_000), (3.0, 30_000), (-1.0, 0), (0.000_04, 0), (25.5, 255_000)] {
            assert_eq!(Amount::new(number), Amount(expected));
        }
        assert_eq!(Amount::new(0.1).0 * 3, Amount::new(0.3).0);
        assert_eq!(Amount::new(8.0).value(), Value::from(8_i64));
        assert_eq!(Amount::new(25.5).value(), Value::from(25.5));
    }
}
