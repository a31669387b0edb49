//! A value as JSON.

use std::fmt::Write;

use crate::read::value::Value;

/// A value as JSON in one line, in ASCII, the keys of each mapping sorted, numbers first: equal values give
/// equal texts.
pub fn json(value: &Value) -> String {
    let mut text = String::new();
    write(value, &mut text);
    text
}

fn write(value: &Value, text: &mut String) {
    match value {
        Value::Null => text.push_str("null"),
        Value::Bool(value) => text.push_str(if *value { "true" } else { "false" }),
        Value::Int(number) => text.push_str(&number.value.to_string()),
        Value::Float(number) => text.push_str(&format!("{:?}", number.value)),
        Value::Text(letters) => write_text(letters, text),
        Value::Ranks(ranks) => write_text(&ranks.to_string(), text),
        Value::Other(other) => write_text(&other.shown, text),
        Value::List(items) => {
            text.push('[');
            for (index, item) in items.iter().enumerate() {
                text.push_str(if index > 0 { ", " } else { "" });
                write(item, text);
            }
            text.push(']');
        }
        Value::Map(pairs) => {
            let mut members: Vec<_> = pairs.iter().collect();
            members.sort_by_key(|(key, _)| match key {
                Value::Int(number) => (number.value, String::new()),
                key => (i64::MAX, key_text(key)),
            });
            text.push('{');
            for (index, (key, value)) in members.into_iter().enumerate() {
                text.push_str(if index > 0 { ", " } else { "" });
                write_text(&key_text(key), text);
                text.push_str(": ");
                write(value, text);
            }
            text.push('}');
        }
    }
}

/// A key as text: JSON has no other keys.
fn key_text(key: &Value) -> String {
    match key {
        Value::Text(text) => text.clone(),
        other => json(other),
    }
}

fn write_text(letters: &str, text: &mut String) {
    text.push('"');
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
