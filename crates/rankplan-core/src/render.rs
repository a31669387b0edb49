//! Renders a diagnostic as text with carets. Only this file uses `annotate-snippets`.

use std::ops::Range;

use annotate_snippets::renderer::DecorStyle;
use annotate_snippets::{AnnotationKind, Group, Level, Origin, Renderer, Snippet};

use crate::words::printable;

/// A diagnostic and its place, if known.
#[derive(Clone, Debug, Default)]
pub struct Report<'a> {
    /// Whether this is a warning instead of an error.
    pub warning: bool,
    /// The slug of the code.
    pub code: &'a str,
    /// The value found, and the values allowed.
    pub message: &'a str,
    /// A correct text, or how to write one.
    pub help: Option<&'a str>,
    /// `file`, `file:line:column`, or empty.
    pub place: &'a str,
    /// The path in the config: `cluster.component_placement.actor`.
    pub path: &'a str,
    /// The line of the file, or the text by itself.
    pub source: &'a str,
    /// The number of that line in the file, counted from 1.
    pub line: Option<usize>,
    /// Places in `source` (bytes) with their notes; the first one is the fault's own.
    pub labels: Vec<(Range<usize>, &'a str)>,
}

/// The number of bytes shown of a long line.
const WIDTH: usize = 140;

impl Report<'_> {
    /// The diagnostic as text, without a newline at the end.
    pub fn render(&self, color: bool) -> String {
        let level = if self.warning { Level::WARNING } else { Level::ERROR };
        let (message, help) = (printable(self.message), self.help.map(printable));
        let title = level.primary_title(message).id(self.code);
        let place = [self.place, self.path].into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join("  ");
        let (source, labels) = self.window();
        let mut group = Group::with_title(title);
        if !place.is_empty() {
            group = group.element(Origin::path(printable(&place)));
        }
        if !labels.is_empty() {
            let mut snippet = Snippet::source(source).line_start(self.line.unwrap_or(1));
            for (index, (span, text)) in labels.iter().enumerate() {
                let kind = if index == 0 { AnnotationKind::Primary } else { AnnotationKind::Context };
                let label = Some(text).filter(|text| !text.is_empty());
                snippet = snippet.annotation(kind.span(span.clone()).label(label));
            }
            group = group.element(snippet);
        }
        if let Some(help) = help {
            group = group.element(Level::HELP.message(help));
        }
        let renderer = if color { Renderer::styled() } else { Renderer::plain() };
        let text = renderer.decor_style(DecorStyle::Ascii).term_width(WIDTH + 20).render(&[group]);
        // The snippet has no path because the place above it says more; the renderer then adds a line with `:::`. Without a
        // snippet or a place, the gutter is useless too.
        let alone = labels.is_empty() && self.place.is_empty() && self.path.is_empty();
        let shown = text.lines().filter(|line| !(is_bare(line, ":::") || alone && is_bare(line, "|")));
        shown.collect::<Vec<_>>().join("\n")
    }

    /// The part of a long line around the fault, and the labels in it.
    fn window(&self) -> (String, Vec<(Range<usize>, String)>) {
        let Some((first, _)) = self.labels.first() else { return Default::default() };
        let cut = |at: usize| self.source.floor_char_boundary(at);
        let start = if self.source.len() <= WIDTH { 0 } else { cut(first.start.saturating_sub(WIDTH / 2)) };
        let end = cut((start + WIDTH).min(self.source.len()));
        let before = if start > 0 { "..." } else { "" };
        let after = if end < self.source.len() { "..." } else { "" };
        // A control character could move the cursor; replace it with a blank of the same length in bytes.
        let shown =
            self.source[start..end].replace(|c: char| c.is_ascii_control(), " ").replace(char::is_control, "\u{a0}");
        let shift = |at: usize| cut(at).clamp(start, end) - start + before.len();
        let inside = |span: &Range<usize>| span.start >= start && span.start <= end;
        let labels = self
            .labels
            .iter()
            .filter(|(span, _)| inside(span))
            .map(|(span, text)| (shift(span.start)..shift(span.end.max(span.start)), printable(text)));
        (format!("{before}{shown}{after}"), labels.collect())
    }
}

/// Whether a line consists of this mark, perhaps in colour.
fn is_bare(line: &str, mark: &str) -> bool {
    let plain = line.split('\u{1b}').map(|part| part.trim_start_matches(|c| "[0123456789;m".contains(c)));
    line.contains(mark) && plain.flat_map(str::chars).filter(|c| *c != ' ').eq(mark.chars())
}
