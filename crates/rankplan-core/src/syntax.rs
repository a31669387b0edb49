//! Text to parts with their places.
//!
//! ```text
//! placement = [segment] { "," [segment] }          blanks are allowed around every token
//! segment   = resources [ ":" processes ]
//! resources = range { "," range } | "all"          "all" in any letter case
//! processes = range
//! range     = rank [ "-" rank ]                    both ends included
//! rank      = ASCII decimal digits, no sign, no "_", no leading zero, at most 4294967294
//! ```
//!
//! Which ranges belong to one segment depends on the process ranks, so a [`Part`] is what stands between two commas, and
//! [`crate::rank_map`] joins parts to segments. Not of the grammar, among others: `3-`, `-1`, `+3`, `0_1`, `007`, `0..3`,
//! `0;1`, `٣`, `0 1`, `0:1:2`, `:3`, `0:`, `4294967295`.

use std::ops::Range;

use crate::diagnostic::{Code, Diagnostic};
use crate::ids::MAX_RANK;
use crate::rank_set::{RankRange, RankSet};

/// Bytes of the text, end exclusive. Texts are at most [`MAX_TEXT`] long.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Span {
    /// The first byte.
    pub start: u32,
    /// The byte after the last.
    pub end: u32,
}

impl From<Span> for Range<usize> {
    fn from(span: Span) -> Self {
        span.start as usize..span.end as usize
    }
}

impl Span {
    /// The bytes from the start of this span to the end of the other.
    #[must_use]
    pub fn to(self, other: Span) -> Span {
        Span { start: self.start, end: other.end }
    }
}

/// The longest text that is read, in bytes.
pub const MAX_TEXT: usize = 1 << 30;

/// Ranks as they were written: perhaps backwards, perhaps `all`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ranks {
    /// `first-last`, or one rank twice.
    Range {
        /// The rank before the dash.
        first: u32,
        /// The rank after the dash.
        last: u32,
    },
    /// `all`.
    All,
}

/// Ranks and where they stand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Written {
    /// What was written.
    pub ranks: Ranks,
    /// Where.
    pub span: Span,
}

/// What stands between two commas.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// What stands before the colon.
    pub resources: Written,
    /// What stands after the colon, if there is one.
    pub processes: Option<Written>,
}

/// Read a placement.
///
/// # Errors
/// One fault, `syntax` or `empty-placement`: after it nothing can be said of the rest of the text.
pub fn parse(text: &str) -> Result<Vec<Part>, Diagnostic> {
    let parts = Reader::new(text, true)?.parts()?;
    if parts.is_empty() {
        return Err(Diagnostic::new(Code::EmptyPlacement, "the placement is empty")
            .help("write resource ranks such as 0-7, or all")
            .label(0..text.len(), "no segment"));
    }
    Ok(parts)
}

/// Read a set of ranks: ranges between commas, in any order; no colon, no `all`.
///
/// # Errors
/// One fault: `syntax`, or `reversed-range`.
pub fn parse_rank_set(text: &str) -> Result<RankSet, Diagnostic> {
    parse_ranges(text).map(RankSet::from_ranges)
}

/// Read ranges between commas, in the order written; no colon, no `all`.
///
/// # Errors
/// One fault: `syntax`, or `reversed-range`.
pub fn parse_ranges(text: &str) -> Result<Vec<RankRange>, Diagnostic> {
    let parts = Reader::new(text, false)?.parts()?;
    let mut ranges = Vec::with_capacity(parts.len());
    for Part { resources, .. } in parts {
        match resources.ranks {
            Ranks::Range { first, last } => ranges.push(
                RankRange::new(first, last)
                    .ok_or_else(|| reversed_range(first, last).label(resources.span.into(), ""))?,
            ),
            Ranks::All => {
                return Err(Diagnostic::new(Code::Syntax, "`all` cannot stand here")
                    .help("write the ranks, e.g. 0-7")
                    .label(resources.span.into(), ""));
            }
        }
    }
    Ok(ranges)
}

/// The fault of a range like `7-3`, without its place.
pub(crate) fn reversed_range(first: u32, last: u32) -> Diagnostic {
    Diagnostic::new(Code::ReversedRange, format!("range {first}-{last} ends before it starts"))
        .help(format!("write {last}-{first}"))
}

struct Reader<'a> {
    text: &'a str,
    bytes: &'a [u8],
    at: usize,
    /// Whether process ranks may follow a colon.
    colon: bool,
}

impl<'a> Reader<'a> {
    fn new(text: &'a str, colon: bool) -> Result<Self, Diagnostic> {
        if text.len() > MAX_TEXT {
            let message = format!("the text is {} bytes long; at most {MAX_TEXT} are read", text.len());
            return Err(Diagnostic::new(Code::Syntax, message).help("write ranges instead of single ranks"));
        }
        Ok(Reader { text, bytes: text.as_bytes(), at: 0, colon })
    }

    fn parts(mut self) -> Result<Vec<Part>, Diagnostic> {
        let mut parts = Vec::new();
        loop {
            match self.peek() {
                None => return Ok(parts),
                Some(b',') => self.at += 1,
                Some(_) => {
                    parts.push(self.part()?);
                    match self.peek() {
                        None | Some(b',') => {}
                        Some(_) => {
                            return Err(self.unexpected(if self.colon {
                                "`,`, `:` or the end"
                            } else {
                                "`,` or the end"
                            }));
                        }
                    }
                }
            }
        }
    }

    fn part(&mut self) -> Result<Part, Diagnostic> {
        let resources = self.ranks(if self.colon { "resource ranks" } else { "ranks" })?;
        let processes = if self.colon && self.peek() == Some(b':') {
            self.at += 1;
            let processes = self.ranks("process ranks")?;
            if self.peek() == Some(b':') {
                return Err(self
                    .fault(self.at..self.at + 1, "a second `:` in one segment")
                    .help("separate segments with `,`, e.g. 0-1:0-3,2-3:4-7"));
            }
            Some(processes)
        } else {
            None
        };
        Ok(Part { resources, processes })
    }

    /// The next byte that is not blank; the reader stands on it.
    fn peek(&mut self) -> Option<u8> {
        while let Some(byte) = self.bytes.get(self.at) {
            if !byte.is_ascii_whitespace() {
                return Some(*byte);
            }
            self.at += 1;
        }
        None
    }

    fn ranks(&mut self, what: &str) -> Result<Written, Diagnostic> {
        let ranks = match self.peek() {
            Some(b'0'..=b'9') => {
                let start = self.at;
                let first = self.rank()?;
                let end = self.at;
                if self.peek() != Some(b'-') {
                    return Ok(self.written(Ranks::Range { first, last: first }, start, end));
                }
                self.at += 1;
                match self.peek() {
                    Some(b'0'..=b'9') => {
                        let last = self.rank()?;
                        return Ok(self.written(Ranks::Range { first, last }, start, self.at));
                    }
                    _ => return Err(self.unexpected("the last rank of the range")),
                }
            }
            Some(b'a' | b'A') if self.word().eq_ignore_ascii_case("all") => Ranks::All,
            _ => return Err(self.unexpected(what)),
        };
        let start = self.at;
        self.at += "all".len();
        Ok(self.written(ranks, start, self.at))
    }

    fn written(&self, ranks: Ranks, start: usize, end: usize) -> Written {
        // Texts are at most MAX_TEXT long, so the casts keep every bit.
        Written { ranks, span: Span { start: start as u32, end: end as u32 } }
    }

    fn rank(&mut self) -> Result<u32, Diagnostic> {
        let start = self.at;
        let mut value = 0_u32;
        let mut fits = true;
        while let Some(digit) = self.bytes.get(self.at).filter(|byte| byte.is_ascii_digit()) {
            match value.checked_mul(10).and_then(|tens| tens.checked_add(u32::from(digit - b'0'))) {
                Some(next) => value = next,
                None => fits = false,
            }
            self.at += 1;
        }
        let digits = &self.text[start..self.at];
        let shown = if digits.len() > 20 { &digits[..20] } else { digits };
        if !fits || value > MAX_RANK {
            let message = format!("`{shown}` is too large for a rank");
            return Err(self.fault(start..self.at, message).help(format!("ranks go up to {MAX_RANK}")));
        }
        if digits.len() > 1 && digits.starts_with('0') {
            let message = format!("`{shown}` has a leading zero");
            return Err(self.fault(start..self.at, message).help(format!("write {value}")));
        }
        Ok(value)
    }

    /// The letters and digits that the reader stands on.
    fn word(&self) -> &'a str {
        let rest = &self.text[self.at..];
        rest.split(|c: char| !c.is_alphanumeric()).next().unwrap_or(rest)
    }

    /// The fault of finding something else than `expected` where the reader stands.
    fn unexpected(&mut self, expected: &str) -> Diagnostic {
        let at = self.at;
        let Some(found) = self.text[at..].chars().next() else {
            return self.fault(at..at, format!("the text ends where {expected} should stand")).help(self.grammar());
        };
        let word = self.word();
        let end = at + if word.is_empty() { found.len_utf8() } else { word.len() };
        let shown: String = self.text[at..end].chars().take(20).collect();
        let help = match found {
            '_' => "write the digits of a rank without `_`",
            '+' => "ranks have no sign: leave the `+` out",
            '-' if self.text[..at].trim_end().ends_with(|c: char| c.is_ascii_alphanumeric()) => {
                "a range has two ends, first-last, and `all` stands alone"
            }
            '-' if expected.contains("ranks") => "ranks have no sign and count from 0; a range is written first-last",
            '.' if self.text[at + 1..].starts_with(['.', ' ']) => "a range is written first-last with `-`, e.g. 0-3",
            '.' | 'e' | 'E' | 'x' | 'X' | 'o' | 'b' if self.text[..at].ends_with(|c: char| c.is_ascii_digit()) => {
                "a rank is a whole number in decimal digits"
            }
            ';' | '/' | '|' => "separate ranges with `,`",
            '0'..='9' => "separate ranks with `,`, or write a range with `-`",
            _ if found.is_numeric() => "write ranks with the ASCII digits 0-9",
            '–' | '—' | '−' | '~' => "a range is written with the ASCII hyphen `-`",
            _ if found.is_whitespace() || "\u{200b}\u{200c}\u{200d}\u{2060}\u{feff}".contains(found) => {
                "this character is invisible and not a plain blank: write a blank, or nothing"
            }
            '$' => "the text holds an interpolation: give the config with interpolations resolved",
            _ => self.grammar(),
        };
        self.fault(at..end, format!("`{}` where {expected} should stand", escaped(&shown))).help(help)
    }

    fn grammar(&self) -> &'static str {
        if self.colon {
            "write resource_ranks[:process_ranks],..., e.g. 0-1:0-3,4-7 or all"
        } else {
            "write ranges of ranks, e.g. 0-3,7"
        }
    }

    fn fault(&self, span: Range<usize>, message: impl Into<String>) -> Diagnostic {
        Diagnostic::new(Code::Syntax, message).label(span, "")
    }
}

/// A text with invisible characters written out, and quotes as they are.
fn escaped(text: &str) -> String {
    let visible =
        |c: char| if c == '\'' || c == '"' || c == '\\' { c.to_string() } else { c.escape_debug().to_string() };
    text.chars().map(visible).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_refusal_says_where() {
        for (text, span) in [
            ("3-", 2..2),
            ("-1", 0..1),
            ("+3", 0..1),
            ("0_1", 1..2),
            ("007", 0..3),
            ("0..3", 1..2),
            ("0;1", 1..2),
            ("0 1", 2..3),
            ("0:1:2", 3..4),
            (":3", 0..1),
            ("0:", 2..2),
            ("1,4294967295", 2..12),
            ("0-99999999999999999999", 2..22),
            ("٣", 0..2),
            ("allx", 0..4),
            ("0,allé", 2..7),
            ("\u{0}", 0..1),
            ("0-3-5", 3..4),
        ] {
            let fault = parse(text).expect_err(text);
            assert_eq!((fault.code, fault.labels[0].span.clone()), (Code::Syntax, span), "{text}");
            assert!(fault.help.is_some(), "{text}");
        }
    }

    #[test]
    fn blanks_and_empty_parts_are_passed_over() {
        let plain = parse("0-1:0-3,3-5").expect("valid");
        let loose = parse(" ,\t0 - 1\n:0- 3,, 3 -5 ,").expect("valid");
        let ranks = |parts: &[Part]| {
            parts.iter().map(|p| (p.resources.ranks, p.processes.map(|w| w.ranks))).collect::<Vec<_>>()
        };
        assert_eq!(ranks(&plain), ranks(&loose));
    }
}
