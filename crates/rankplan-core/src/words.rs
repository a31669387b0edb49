//! English for messages: plurals, counts, and text that is safe to show.

use std::borrow::Cow;

/// The noun for this many things: `node`, `nodes`; `process`, `processes`.
pub fn plural(count: u32, noun: &'static str) -> Cow<'static, str> {
    match count {
        1 => Cow::Borrowed(noun),
        _ if noun.ends_with('s') => Cow::Owned(format!("{noun}es")),
        _ => Cow::Owned(format!("{noun}s")),
    }
}

/// `1 node`, `2 nodes`.
pub fn count(count: u32, noun: &'static str) -> String {
    format!("{count} {}", plural(count, noun))
}

/// These numbers, except 0, as alternatives: `200 or 202`, `1, 2 or 4`.
pub fn either(numbers: impl IntoIterator<Item = u64>) -> String {
    let numbers: Vec<_> = numbers.into_iter().filter(|&n| n > 0).map(|n| n.to_string()).collect();
    match numbers.split_last() {
        Some((last, others)) if !others.is_empty() => format!("{} or {last}", others.join(", ")),
        _ => numbers.concat(),
    }
}

/// A number with commas between thousands.
pub fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// `count` ranks starting at `first`: `4-7`, or `4` for one rank.
pub fn ranks(first: u32, count: u32) -> String {
    match count {
        0 | 1 => first.to_string(),
        _ => format!("{first}-{}", first.saturating_add(count - 1)),
    }
}

/// A text with its invisible characters escaped; quotes and backslashes stay.
pub fn escaped(text: &str) -> String {
    let visible =
        |c: char| if c == '\'' || c == '"' || c == '\\' { c.to_string() } else { c.escape_debug().to_string() };
    text.chars().map(visible).collect()
}

/// A text with a replacement character for each control character, which could move the cursor or change the colour.
pub fn printable(text: &str) -> String {
    text.replace(char::is_control, "\u{fffd}")
}
