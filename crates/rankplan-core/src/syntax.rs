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
//! RLinf: `ComponentPlacement._parse_rank_map` and `parse_rank_config`; docs/differences.md lists the intended differences.
//!
//! The process ranks decide which ranges belong to a segment, so a [`Part`] is the text between two commas, and
//! `check` joins parts to segments. Some texts that do not match the grammar: `3-`, `-1`, `+3`, `0_1`, `007`,
//! `0..3`, `0;1`, `٣`, `0 1`, `0:1:2`, `:3`, `0:`, `4294967295`.

use std::ops::Range;

use crate::diagnostic::{Code, Diagnostic};
use crate::ids::MAX_RANK;
use crate::rank_set::{RankRange, RankSet};
use crate::words::escaped;

/// Bytes of the text, end exclusive. A text has at most [`MAX_TEXT`] bytes.
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

/// The largest text, in bytes.
pub const MAX_TEXT: usize = 1 << 26;

/// Ranks as written: possibly a reversed range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ranks {
    /// `first-last`, or a single rank.
    Range {
        /// The rank before the dash.
        first: u32,
        /// The rank after the dash.
        last: u32,
    },
    /// `all`.
    All,
}

/// Ranks and their place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Written {
    /// The ranks.
    pub ranks: Ranks,
    /// The place.
    pub span: Span,
}

/// The text between two commas.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// The ranks before the colon.
    pub resources: Written,
    /// The ranks after the colon, if it has one.
    pub processes: Option<Written>,
}

/// Read a placement.
///
/// # Errors
/// One fault, `syntax` or `empty-placement`.
pub fn parse(text: &str) -> Result<Vec<Part>, Diagnostic> {
    Ok(Parts::new(text)?.collect::<Result<_, _>>()?)
}

/// Read a set of ranks: ranges separated by commas, in any order, without a colon or `all`.
///
/// # Errors
/// One fault, `syntax` or `reversed-range`.
pub fn parse_rank_set(text: &str) -> Result<RankSet, Diagnostic> {
    parse_ranges(text).map(RankSet::from_ranges)
}

/// Read ranges separated by commas, in the order written, without a colon or `all`.
///
/// # Errors
/// One fault, `syntax` or `reversed-range`.
pub fn parse_ranges(text: &str) -> Result<Vec<RankRange>, Diagnostic> {
    let mut ranges = Vec::new();
    for part in (Parts { colon: false, ..Parts::new(text)? }) {
        let resources = part?.resources;
        let range = match resources.ranks {
            Ranks::Range { first, last } => RankRange::new(first, last).ok_or_else(|| reversed_range(first, last)),
            Ranks::All => {
                Err(Diagnostic::new(Code::Syntax, "`all` is not allowed here").help("write the ranks, e.g. 0-7"))
            }
        };
        ranges.push(range.map_err(|fault| fault.label(resources.span.into(), ""))?);
    }
    Ok(ranges)
}

/// The fault of a range like `7-3`, without its place.
pub(crate) fn reversed_range(first: u32, last: u32) -> Diagnostic {
    Diagnostic::new(Code::ReversedRange, format!("range {first}-{last} ends before it starts"))
        .help(format!("write {last}-{first}"))
}

/// A value read, or the fault, boxed to keep the result small.
type Read<T> = Result<T, Box<Diagnostic>>;

/// Reads a text part by part. After a fault, the rest of the text cannot be read.
pub(crate) struct Parts<'a> {
    text: &'a str,
    bytes: &'a [u8],
    at: usize,
    /// Whether the text is a placement: parts can have process ranks, and one part is required.
    colon: bool,
    empty: bool,
}

impl<'a> Parts<'a> {
    /// The parts of a placement.
    pub fn new(text: &'a str) -> Result<Self, Diagnostic> {
        if text.len() > MAX_TEXT {
            let message = format!("the text has {} bytes; the limit is {MAX_TEXT}", text.len());
            return Err(Diagnostic::new(Code::Syntax, message).help("write ranges instead of single ranks"));
        }
        Ok(Parts { text, bytes: text.as_bytes(), at: 0, colon: true, empty: true })
    }

    fn part(&mut self) -> Read<Part> {
        let resources = self.ranks(if self.colon { "resource ranks" } else { "ranks" })?;
        if !self.colon || self.peek() != Some(b':') {
            return Ok(Part { resources, processes: None });
        }
        self.at += 1;
        let processes = Some(self.ranks("process ranks")?);
        if self.peek() == Some(b':') {
            let fault = self.fault(self.at..self.at + 1, "a segment has at most one `:`");
            return Err(fault.help("separate segments with `,`, e.g. 0-1:0-3,2-3:4-7").into());
        }
        Ok(Part { resources, processes })
    }

    /// Skip blanks and return the next byte.
    fn peek(&mut self) -> Option<u8> {
        while let Some(byte) = self.bytes.get(self.at) {
            if !byte.is_ascii_whitespace() {
                return Some(*byte);
            }
            self.at += 1;
        }
        None
    }

    fn ranks(&mut self, expected: &str) -> Read<Written> {
        match self.peek() {
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
                        Ok(self.written(Ranks::Range { first, last }, start, self.at))
                    }
                    _ => Err(self.unexpected("the last rank of the range").into()),
                }
            }
            Some(b'a' | b'A') if self.word().eq_ignore_ascii_case("all") => {
                let start = self.at;
                self.at += "all".len();
                Ok(self.written(Ranks::All, start, self.at))
            }
            _ => Err(self.unexpected(expected).into()),
        }
    }

    fn written(&self, ranks: Ranks, start: usize, end: usize) -> Written {
        // MAX_TEXT fits into 32 bits.
        Written { ranks, span: Span { start: start as u32, end: end as u32 } }
    }

    fn rank(&mut self) -> Read<u32> {
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
            return Err(self.fault(start..self.at, message).help(format!("the largest rank is {MAX_RANK}")).into());
        }
        if digits.len() > 1 && digits.starts_with('0') {
            let message = format!("`{shown}` has a leading zero");
            return Err(self.fault(start..self.at, message).help(format!("write {value}")).into());
        }
        Ok(value)
    }

    /// The letters and digits at the current position.
    fn word(&self) -> &'a str {
        let rest = &self.text[self.at..];
        rest.split(|c: char| !c.is_alphanumeric()).next().unwrap_or(rest)
    }

    /// The fault of anything but `expected` at the current position.
    fn unexpected(&self, expected: &str) -> Diagnostic {
        let at = self.at;
        let Some(found) = self.text[at..].chars().next() else {
            return self.fault(at..at, format!("expected {expected}, found end of text")).help(self.grammar());
        };
        let word = self.word();
        let end = at + if word.is_empty() { found.len_utf8() } else { word.len() };
        let shown: String = self.text[at..end].chars().take(20).collect();
        let help = match found {
            '_' => "write ranks without `_`",
            '+' => "ranks have no sign: remove the `+`",
            '-' if self.text[..at].trim_end().ends_with(|c: char| c.is_ascii_alphanumeric()) => {
                "write a range as first-last, and `all` by itself"
            }
            '-' if expected.contains("ranks") => "ranks have no sign and start at 0; write a range as first-last",
            '.' if self.text[at + 1..].starts_with(['.', ' ']) => "write a range as first-last with `-`, e.g. 0-3",
            '.' | 'e' | 'E' | 'x' | 'X' | 'o' | 'b' if self.text[..at].ends_with(|c: char| c.is_ascii_digit()) => {
                "write a rank as a whole decimal number"
            }
            ';' | '/' | '|' => "separate ranges with `,`",
            '0'..='9' => "separate ranks with `,`, or write a range with `-`",
            _ if found.is_numeric() => "write ranks with the ASCII digits 0-9",
            '–' | '—' | '−' | '~' => "write a range with the ASCII hyphen `-`",
            _ if found.is_whitespace() || "\u{200b}\u{200c}\u{200d}\u{2060}\u{feff}".contains(found) => {
                "remove this invisible character, or replace it with a plain space"
            }
            '$' => "write the ranks, or pass the config after Hydra has resolved it",
            _ => self.grammar(),
        };
        self.fault(at..end, format!("expected {expected}, found `{}`", escaped(&shown))).help(help)
    }

    fn grammar(&self) -> &'static str {
        if self.colon {
            "write resource_ranks[:process_ranks],..., e.g. 0-1:0-3,4-7 or all"
        } else {
            "write ranks and ranges, e.g. 0-3,7"
        }
    }

    fn fault(&self, span: Range<usize>, message: impl Into<String>) -> Diagnostic {
        Diagnostic::new(Code::Syntax, message).label(span, "")
    }
}

impl Iterator for Parts<'_> {
    type Item = Read<Part>;

    fn next(&mut self) -> Option<Read<Part>> {
        while self.peek() == Some(b',') {
            self.at += 1;
        }
        if self.peek().is_none() {
            let empty = std::mem::take(&mut self.empty) && self.colon;
            return empty.then(|| {
                let fault = Diagnostic::new(Code::EmptyPlacement, "the placement is empty")
                    .help("write resource ranks such as 0-7, or all");
                Err(fault.label(0..self.text.len(), "no segment").into())
            });
        }
        self.empty = false;
        let part = self.part();
        if part.is_ok() && self.peek().is_some_and(|byte| byte != b',') {
            let expected = if self.colon { "`,`, `:` or end of text" } else { "`,` or end of text" };
            return Some(Err(self.unexpected(expected).into()));
        }
        Some(part)
    }
}
