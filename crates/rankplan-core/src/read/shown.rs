//! Values as messages show them: as YAML writes them, long parts cut in the middle.
//!
//! The same texts as `rankplan.words.shown`, which shows the values of configs: Python's `reprlib` with these limits.

use std::cmp::Ordering;

use crate::read::value::Value;

/// The most characters of a value in a message.
const LONGEST: usize = 60;
/// The most digits of a whole number.
const LONGEST_INT: usize = 40;
/// The most items of a list or a mapping.
const MOST_ITEMS: usize = 10;
/// The most levels of lists and mappings.
const DEEPEST: usize = 3;

/// A value in at most 60 characters, without any that could move the cursor.
pub fn shown(value: &Value) -> String {
    let visible = |letter: char| if printable(letter) { letter.to_string() } else { escaped(letter) };
    let text: String = at_level(value, DEEPEST).chars().take(2 * LONGEST).map(visible).collect();
    match text.char_indices().nth(LONGEST) {
        None => text,
        Some(_) => text.chars().take(LONGEST - 3).chain("...".chars()).collect(),
    }
}

fn at_level(value: &Value, level: usize) -> String {
    match value {
        Value::Null => "null".to_owned(),
        Value::Bool(value) => value.to_string(),
        Value::Int(number) => cut(&number.text(), LONGEST_INT),
        Value::Float(number) => number.text(),
        Value::Text(text) => short_text(text),
        Value::List(items) if level == 0 && !items.is_empty() => "[...]".to_owned(),
        Value::List(items) => {
            let first = items.iter().take(MOST_ITEMS).map(|item| at_level(item, level.saturating_sub(1)));
            format!("[{}]", joined(first, items.len()))
        }
        Value::Map(pairs) if level == 0 && !pairs.is_empty() => "{...}".to_owned(),
        Value::Map(pairs) => {
            let inner = level.saturating_sub(1);
            let first = sorted(pairs).into_iter().take(MOST_ITEMS);
            let first = first.map(|(key, value)| format!("{}: {}", at_level(key, inner), at_level(value, inner)));
            format!("{{{}}}", joined(first, pairs.len()))
        }
        Value::Ranks(ranks) => format!("RankSet('{ranks}')"),
        Value::Other(other) => other.shown.clone(),
    }
}

fn joined(first: impl Iterator<Item = String>, count: usize) -> String {
    let more = (count > MOST_ITEMS).then(|| "...".to_owned());
    first.chain(more).collect::<Vec<_>>().join(", ")
}

/// The pairs by key, if all keys are texts, or all are whole numbers; else in their order.
fn sorted(pairs: &[(Value, Value)]) -> Vec<&(Value, Value)> {
    let order = |one: &Value, other: &Value| match (one, other) {
        (Value::Text(one), Value::Text(other)) => Some(one.cmp(other)),
        (Value::Int(one), Value::Int(other)) => Some(one.value.cmp(&other.value)),
        _ => None,
    };
    let mut found: Vec<_> = pairs.iter().collect();
    if found.windows(2).all(|both| order(&both[0].0, &both[1].0).is_some()) {
        found.sort_by(|one, other| order(&one.0, &other.0).unwrap_or(Ordering::Equal));
    }
    found
}

/// A text in quotes, in at most so many characters.
fn short_text(text: &str) -> String {
    let letters: Vec<char> = text.chars().collect();
    let first: String = letters.iter().take(LONGEST).collect();
    let whole = quoted(&first);
    if whole.chars().count() <= LONGEST {
        return whole;
    }
    let (before, after) = halves(LONGEST);
    let start = letters.iter().take(before);
    let ends: String = start.chain(&letters[letters.len().saturating_sub(after)..]).collect();
    let written: Vec<char> = quoted(&ends).chars().collect();
    with_dots(&written, before, after)
}

/// A text with dots in place of its middle if it is longer than so many characters.
fn cut(text: &str, longest: usize) -> String {
    let letters: Vec<char> = text.chars().collect();
    if letters.len() <= longest {
        return text.to_owned();
    }
    let (before, after) = halves(longest);
    with_dots(&letters, before, after)
}

/// The first and the last letters of a text, with dots between them.
fn with_dots(letters: &[char], before: usize, after: usize) -> String {
    let start = letters.iter().take(before);
    start.chain(&['.'; 3]).chain(&letters[letters.len().saturating_sub(after)..]).collect()
}

/// How many characters stay before and after three dots.
fn halves(longest: usize) -> (usize, usize) {
    let before = (longest - 3) / 2;
    (before, longest - 3 - before)
}

/// A text in quotes, with escapes, as Python writes it.
pub fn quoted(text: &str) -> String {
    let quote = if text.contains('\'') && !text.contains('"') { '"' } else { '\'' };
    let mut written = String::with_capacity(text.len() + 2);
    written.push(quote);
    for letter in text.chars() {
        match letter {
            '\\' => written.push_str("\\\\"),
            _ if letter == quote => {
                written.push('\\');
                written.push(letter);
            }
            _ if printable(letter) => written.push(letter),
            _ => written.push_str(&escaped(letter)),
        }
    }
    written.push(quote);
    written
}

/// A character that cannot be printed, as an escape.
fn escaped(letter: char) -> String {
    match (letter, letter as u32) {
        ('\n', _) => "\\n".to_owned(),
        ('\r', _) => "\\r".to_owned(),
        ('\t', _) => "\\t".to_owned(),
        (_, code @ ..=0xff) => format!("\\x{code:02x}"),
        (_, code @ ..=0xffff) => format!("\\u{code:04x}"),
        (_, code) => format!("\\U{code:08x}"),
    }
}

/// Whether a character can be printed: it is a letter, a mark, a number, punctuation, a symbol, or a blank.
pub fn printable(letter: char) -> bool {
    // A combining mark is only escaped at the start of a text, so the text starts with another letter.
    match letter {
        ' '..='~' => true,
        _ => ['a', letter].into_iter().collect::<String>().escape_debug().eq(['a', letter]),
    }
}

/// Whether every character of a text can be printed.
pub fn all_printable(text: &str) -> bool {
    text.chars().all(printable)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_shown_as_yaml_writes_them() {
        let pairs = |pairs: &[(&str, Value)]| Value::map(pairs.iter().cloned());
        let rows = [
            (Value::Null, "null"),
            (Value::from(true), "true"),
            (Value::from(8_u32), "8"),
            (Value::from(1.5), "1.5"),
            (Value::from("it's"), "\"it's\""),
            (Value::from("a\tb\u{7f}\u{e9}\u{301}"), "'a\\tb\\x7f\u{e9}\u{301}'"),
            (Value::list((0..12_u32).map(Value::from)), "[0, 1, 2, 3, 4, 5, 6, 7, 8, 9, ...]"),
            (pairs(&[("b", Value::Null), ("a", Value::list([]))]), "{'a': [], 'b': null}"),
            (Value::from("x".repeat(80)), "'xxxxxxxxxxxxxxxxxxxxxxxxxxx...xxxxxxxxxxxxxxxxxxxxxxxxxxxx'"),
        ];
        for (value, text) in rows {
            assert_eq!(shown(&value), text);
        }
        let nested = (0..5).fold(Value::from(1_u32), |value, _| Value::list([value]));
        assert_eq!(shown(&nested), "[[[[...]]]]");
    }
}
