//! JSON to a value, as Python reads it.

use std::collections::HashMap;

use smol_str::SmolStr;

use crate::read::value::{Float, Int, Value};

/// The most lists and mappings within each other. Deeper ones are left to another reader.
const DEEPEST: usize = 200;
/// The most digits of a whole number that Python reads.
const MOST_DIGITS: usize = 4300;
/// Up to so many keys, looking through all of them is faster than a table.
const FEW: usize = 16;

/// The value of a JSON text; `None` if it is no JSON, is too deep, or has a character that no text of Rust can have.
///
/// The last one of equal keys counts, in the place of the first. As in Python, `NaN` and `Infinity` are numbers.
pub fn parse(text: &str) -> Option<Value> {
    let mut parser = Parser { text, at: 0, items: Vec::new(), members: Vec::new() };
    let value = parser.value(0)?;
    parser.skip_blanks();
    (parser.at == text.len()).then_some(value)
}

struct Parser<'a> {
    text: &'a str,
    /// The byte that comes next.
    at: usize,
    /// The items of the lists that are open, each of which has those from its start on.
    items: Vec<Value>,
    /// The members of the mappings that are open, likewise.
    members: Vec<(Value, Value)>,
}

impl Parser<'_> {
    fn next(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn skip_blanks(&mut self) {
        while matches!(self.next(), Some(b' ' | b'\t' | b'\n' | b'\r')) {
            self.at += 1;
        }
    }

    /// Go past a byte, if it comes next.
    fn take(&mut self, byte: u8) -> bool {
        let found = self.next() == Some(byte);
        self.at += usize::from(found);
        found
    }

    fn value(&mut self, depth: usize) -> Option<Value> {
        self.skip_blanks();
        match self.next()? {
            b'"' => self.string().map(Value::Text),
            b'{' if depth < DEEPEST => self.mapping(depth + 1),
            b'[' if depth < DEEPEST => self.list(depth + 1),
            b'-' | b'0'..=b'9' => self.number(),
            b'N' => self.word("NaN", Value::from(f64::NAN)),
            b'I' => self.word("Infinity", Value::from(f64::INFINITY)),
            b't' => self.word("true", Value::Bool(true)),
            b'f' => self.word("false", Value::Bool(false)),
            b'n' => self.word("null", Value::Null),
            _ => None,
        }
    }

    fn word(&mut self, word: &str, value: Value) -> Option<Value> {
        self.text[self.at..].starts_with(word).then(|| {
            self.at += word.len();
            value
        })
    }

    fn list(&mut self, depth: usize) -> Option<Value> {
        self.at += 1;
        self.skip_blanks();
        let start = self.items.len();
        if !self.take(b']') {
            loop {
                let item = self.value(depth)?;
                self.items.push(item);
                self.skip_blanks();
                if self.take(b']') {
                    break;
                }
                self.take(b',').then_some(())?;
            }
        }
        Some(Value::List(self.items.drain(start..).collect()))
    }

    fn mapping(&mut self, depth: usize) -> Option<Value> {
        self.at += 1;
        self.skip_blanks();
        let start = self.members.len();
        let mut known = HashMap::new();
        if !self.take(b'}') {
            loop {
                self.skip_blanks();
                let key = self.string()?;
                self.skip_blanks();
                self.take(b':').then_some(())?;
                let value = self.value(depth)?;
                self.add_member(start, &mut known, key, value);
                self.skip_blanks();
                if self.take(b'}') {
                    break;
                }
                self.take(b',').then_some(())?;
            }
        }
        Some(Value::Map(self.members.drain(start..).collect()))
    }

    /// Add a member to the mapping from this start on, or change its value. `known` has the index of each key, once there are
    /// many.
    fn add_member(&mut self, start: usize, known: &mut HashMap<SmolStr, usize>, key: SmolStr, value: Value) {
        let members = &mut self.members[start..];
        let count = members.len();
        if count == FEW {
            let texts = members.iter().enumerate();
            *known = texts.filter_map(|(index, (key, _))| Some((text(key)?.into(), index))).collect();
        }
        let found = if count < FEW {
            members.iter().position(|(known, _)| text(known) == Some(&key))
        } else {
            known.get(&key).copied()
        };
        if let Some(index) = found {
            members[index].1 = value;
            return;
        }
        if count >= FEW {
            known.insert(key.clone(), count);
        }
        self.members.push((Value::Text(key), value));
    }

    fn number(&mut self) -> Option<Value> {
        if let Some(value) = self.word("-Infinity", Value::from(f64::NEG_INFINITY)) {
            return Some(value);
        }
        let start = self.at;
        self.take(b'-');
        let zero = self.next() == Some(b'0');
        let digits = self.digits()?;
        if zero && digits > 1 {
            return None;
        }
        let whole = self.at;
        if self.take(b'.') {
            self.digits()?;
        }
        if self.take(b'e') || self.take(b'E') {
            let _ = self.take(b'+') || self.take(b'-');
            self.digits()?;
        }
        let written = &self.text[start..self.at];
        if self.at > whole {
            return Some(Value::Float(Float { value: written.parse().ok()?, written: None }));
        }
        match written.parse() {
            Ok(value) => Some(Value::Int(Int { value, written: None })),
            Err(_) if digits > MOST_DIGITS => None,
            Err(_) => {
                let value = if written.starts_with('-') { i64::MIN } else { i64::MAX };
                Some(Value::Int(Int { value, written: Some(written.into()) }))
            }
        }
    }

    /// Go past digits, at least one. Returns their number.
    fn digits(&mut self) -> Option<usize> {
        let start = self.at;
        while self.next().is_some_and(|byte| byte.is_ascii_digit()) {
            self.at += 1;
        }
        (self.at > start).then_some(self.at - start)
    }

    fn string(&mut self) -> Option<SmolStr> {
        self.take(b'"').then_some(())?;
        let mut letters = String::new();
        loop {
            let rest = &self.text[self.at..];
            let ends = |byte| byte < b' ' || byte == b'"' || byte == b'\\';
            let plain = &rest[..rest.bytes().position(ends).unwrap_or(rest.len())];
            self.at += plain.len();
            if self.take(b'"') {
                if letters.is_empty() {
                    return Some(plain.into());
                }
                letters.push_str(plain);
                return Some(letters.into());
            }
            letters.push_str(plain);
            self.take(b'\\').then_some(())?;
            letters.push(self.escape()?);
        }
    }

    fn escape(&mut self) -> Option<char> {
        let byte = self.next()?;
        self.at += 1;
        Some(match byte {
            b'"' | b'\\' | b'/' => char::from(byte),
            b'b' => '\u{8}',
            b'f' => '\u{c}',
            b'n' => '\n',
            b'r' => '\r',
            b't' => '\t',
            b'u' => {
                let first = self.unit()?;
                if !(0xd800..0xdc00).contains(&first) {
                    return char::from_u32(first);
                }
                (self.take(b'\\') && self.take(b'u')).then_some(())?;
                let second = self.unit()?.checked_sub(0xdc00).filter(|low| *low < 0x400)?;
                char::from_u32(0x1_0000 + ((first - 0xd800) << 10) + second)?
            }
            _ => return None,
        })
    }

    /// The four hexadecimal digits of an escape.
    fn unit(&mut self) -> Option<u32> {
        let digits = self.text.get(self.at..self.at + 4)?;
        self.at += 4;
        digits.bytes().all(|byte| byte.is_ascii_hexdigit()).then(|| u32::from_str_radix(digits, 16).ok())?
    }
}

fn text(key: &Value) -> Option<&str> {
    if let Value::Text(text) = key { Some(text) } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::read::json::{Keys, json, write_json};

    #[test]
    fn what_json_states_is_written_again() {
        for text in [
            "null",
            "[]",
            "{}",
            "[true, false, null, -1, 0, 1.5, -0.25, 1e+16, 1e-05, NaN, Infinity, -Infinity]",
            r#"{"a": {"b": [1, [2, "\u00e9\ud83d\ude00\n\"\\\u0001"]]}, "c": ""}"#,
        ] {
            assert_eq!(parse(text).map(|value| json(&value)).as_deref(), Some(text));
        }
    }

    #[test]
    fn blanks_and_escapes() {
        let value = parse(" {\"\\u0061\\/\\b\" :\t[ 1 ,2 ]\r\n} ").map(|value| json(&value));
        assert_eq!(value.as_deref(), Some(r#"{"a/\u0008": [1, 2]}"#));
    }

    #[test]
    fn the_last_one_of_equal_keys_counts_in_the_place_of_the_first() {
        let many: String = (0..40).map(|key| format!("\"{}\": {key}, ", key % 20)).collect();
        for (text, expected) in [
            (r#"{"a": 1, "b": 2, "a": 3}"#.to_owned(), r#"{"a": 3, "b": 2}"#.to_owned()),
            (
                format!("{{{}\"x\": 0}}", many),
                format!("{{{}\"x\": 0}}", (0..20).map(|key| format!("\"{key}\": {}, ", key + 20)).collect::<String>()),
            ),
        ] {
            let mut found = String::new();
            write_json(&parse(&text).unwrap_or(Value::Null), Keys::AsStated, &mut found);
            assert_eq!(found, expected);
        }
    }

    #[test]
    fn large_numbers_are_the_largest() {
        let found = parse("[99999999999999999999, -99999999999999999999]");
        let number = |value, written: &str| Value::Int(Int { value, written: Some(written.into()) });
        let expected = [number(i64::MAX, "99999999999999999999"), number(i64::MIN, "-99999999999999999999")];
        assert_eq!(found, Some(Value::list(expected)));
    }

    #[test]
    fn other_texts_are_no_json() {
        let deep = "[".repeat(1_000_000);
        let long = "9".repeat(5_000);
        for text in [
            "",
            " ",
            "{",
            "[1,]",
            "[1 2]",
            "{\"a\" 1}",
            "{\"a\": 1,}",
            "{a: 1}",
            "01",
            "-",
            "1.",
            ".5",
            "1e",
            "+1",
            "nul",
            "\"a",
            "\"\n\"",
            r#""\x""#,
            r#""\u12""#,
            r#""\ud800""#,
            r#""\ud800\u0041""#,
            r#""\udc00""#,
            "1 2",
            "'a'",
            "\u{feff}1",
            "-NaN",
            deep.as_str(),
            long.as_str(),
            r#""\u+123""#,
        ] {
            assert_eq!(parse(text), None, "{text:.40}");
        }
    }
}
