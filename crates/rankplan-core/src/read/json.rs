//! A value as JSON, as Python writes it.

use std::cmp::Ordering;
use std::fmt::Write;

use crate::read::value::{Value, float_text};

/// A value as JSON in one line, in ASCII, the keys of each mapping sorted, numbers first: equal values give
/// equal texts.
pub fn json(value: &Value) -> String {
    let mut text = String::new();
    write_json(value, Keys::Sorted, &mut text);
    text
}

/// The order of the keys of each mapping.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keys {
    /// Numbers first, then texts.
    Sorted,
    /// That of the mapping.
    AsStated,
}

/// Add a value to a text, in one line.
pub fn write_json(value: &Value, keys: Keys, text: &mut String) {
    match value {
        Value::Null => text.push_str("null"),
        Value::Bool(value) => text.push_str(if *value { "true" } else { "false" }),
        Value::Int(number) => {
            // Writing to a text cannot fail.
            let _ = write!(text, "{}", number.value);
        }
        Value::Float(number) => match number.value {
            value if value.is_nan() => text.push_str("NaN"),
            value if value.is_infinite() => text.push_str(if value > 0.0 { "Infinity" } else { "-Infinity" }),
            value => text.push_str(&float_text(value)),
        },
        Value::Text(letters) => write_text(letters, text),
        Value::Ranks(ranks) => write_text(&ranks.to_string(), text),
        Value::Other(other) => write_text(&other.shown, text),
        Value::List(items) => {
            text.push('[');
            for (index, item) in items.iter().enumerate() {
                text.push_str(if index > 0 { ", " } else { "" });
                write_json(item, keys, text);
            }
            text.push(']');
        }
        Value::Map(pairs) => {
            let mut members: Vec<_> = pairs.iter().collect();
            if keys == Keys::Sorted {
                members.sort_by(|(one, _), (other, _)| by_key(one, other));
            }
            text.push('{');
            for (index, (key, value)) in members.into_iter().enumerate() {
                text.push_str(if index > 0 { ", " } else { "" });
                match key {
                    Value::Text(key) => write_text(key, text),
                    key => write_text(&key_text(key), text),
                }
                text.push_str(": ");
                write_json(value, keys, text);
            }
            text.push('}');
        }
    }
}

/// Numbers first, then texts.
fn by_key(one: &Value, other: &Value) -> Ordering {
    match (one, other) {
        (Value::Text(one), Value::Text(other)) => one.cmp(other),
        (Value::Int(one), Value::Int(other)) => one.value.cmp(&other.value),
        (Value::Int(_), _) => Ordering::Less,
        (_, Value::Int(_)) => Ordering::Greater,
        (one, other) => key_text(one).cmp(&key_text(other)),
    }
}

/// A key as text: JSON has no other keys.
fn key_text(key: &Value) -> String {
    match key {
        Value::Text(text) => text.to_string(),
        other => json(other),
    }
}

/// Add a text in quotes.
pub fn write_text(letters: &str, text: &mut String) {
    text.push('"');
    if letters.bytes().all(|byte| (b' '..=b'~').contains(&byte) && byte != b'"' && byte != b'\\') {
        text.push_str(letters);
        text.push('"');
        return;
    }
    for letter in letters.chars() {
        match letter {
            '"' => text.push_str("\\\""),
            '\\' => text.push_str("\\\\"),
            '\n' => text.push_str("\\n"),
            '\r' => text.push_str("\\r"),
            '\t' => text.push_str("\\t"),
            ' '..='~' => text.push(letter),
            _ => {
                let mut units = [0; 2];
                for unit in letter.encode_utf16(&mut units) {
                    // Writing to a text cannot fail.
                    let _ = write!(text, "\\u{unit:04x}");
                }
            }
        }
    }
    text.push('"');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_sorted_and_text_is_ascii() {
        let value = Value::Map(
            [("a\u{1f600}".into(), 2.0.into()), (10_u32.into(), Value::Null), (9_u32.into(), true.into())].into(),
        );
        assert_eq!(
            json(&Value::list([value, Value::from("\"\n")])),
            r#"[{"9": true, "10": null, "a\ud83d\ude00": 2.0}, "\"\n"]"#
        );
    }
}
