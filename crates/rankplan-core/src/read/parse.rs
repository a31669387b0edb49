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
    let mut parser = Parser { text, at: 0 };
    let value = parser.value(0)?;
    parser.skip_blanks();
    (parser.at == text.len()).then_some(value)
}

struct Parser<'a> {
    text: &'a str,
    /// The byte that comes next.
    at: usize,
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
            b'-' | b'0'..=b'9' | b'N' | b'I' => self.number(),
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
        let mut items = Vec::new();
        if !self.take(b']') {
            loop {
                items.push(self.value(depth)?);
                self.skip_blanks();
                if self.take(b']') {
                    break;
                }
                self.take(b',').then_some(())?;
            }
        }
        Some(Value::List(items.into()))
    }

    fn mapping(&mut self, depth: usize) -> Option<Value> {
        self.at += 1;
        self.skip_blanks();
        let mut members = Members::default();
        if !self.take(b'}') {
            loop {
                self.skip_blanks();
                let key = self.string()?;
                self.skip_blanks();
                self.take(b':').then_some(())?;
                let value = self.value(depth)?;
                members.insert(key, value);
                self.skip_blanks();
                if self.take(b'}') {
                    break;
                }
                self.take(b',').then_some(())?;
            }
        }
        Some(Value::Map(members.pairs.into()))
    }

    fn number(&mut self) -> Option<Value> {
        for (word, value) in [("NaN", f64::NAN), ("Infinity", f64::INFINITY), ("-Infinity", f64::NEG_INFINITY)] {
            if let Some(value) = self.word(word, Value::from(value)) {
                return Some(value);
            }
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
            let start = self.at;
            while self.next().is_some_and(|byte| byte >= b' ' && byte != b'"' && byte != b'\\') {
                self.at += 1;
            }
            let plain = &self.text[start..self.at];
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

/// The members of a mapping, each key once.
#[derive(Default)]
struct Members {
    pairs: Vec<(Value, Value)>,
    /// The index of each key, once there are many.
    known: HashMap<SmolStr, usize>,
}

impl Members {
    fn insert(&mut self, key: SmolStr, value: Value) {
        let count = self.pairs.len();
        if count == FEW {
            let texts = self.pairs.iter().enumerate();
            self.known = texts.filter_map(|(index, (key, _))| Some((text(key)?.into(), index))).collect();
        }
        let found = if count < FEW {
            self.pairs.iter().position(|(known, _)| text(known) == Some(&key))
        } else {
            self.known.get(&key).copied()
        };
        match found {
            Some(index) => self.pairs[index].1 = value,
            None => {
                if count >= FEW {
                    self.known.insert(key.clone(), count);
                }
                self.pairs.push((Value::Text(key), value));
            }
        }
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
