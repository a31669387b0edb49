//! A diagnostic as text with carets. The only user of `annotate-snippets`.

use std::ops::Range;

use annotate_snippets::renderer::DecorStyle;
use annotate_snippets::{AnnotationKind, Group, Level, Origin, Renderer, Snippet};

/// A diagnostic and what is known of its place.
#[derive(Clone, Debug, Default)]
pub struct Report<'a> {
    /// Whether it is only a warning.
    pub warning: bool,
    /// The stable name of the rule.
    pub code: &'a str,
    /// What was found, and what is allowed.
    pub message: &'a str,
    /// What to write instead.
    pub help: Option<&'a str>,
    /// `file`, `file:line:column`, or nothing.
    pub place: &'a str,
    /// Where in the config: `cluster.component_placement.actor`.
    pub path: &'a str,
    /// The line of the file, or the text alone; nothing to point at if it is empty.
    pub source: &'a str,
    /// The number of that line in the file, from 1.
    pub line: Option<usize>,
    /// Bytes of `source`, with a word on each; the first is the place of the fault.
    pub labels: Vec<(Range<usize>, &'a str)>,
}

/// Characters of a line that are shown.
const WIDTH: usize = 140;

impl Report<'_> {
    /// The diagnostic as text, without a newline at the end.
    pub fn render(&self, color: bool) -> String {
        let level = if self.warning { Level::WARNING } else { Level::ERROR };
        let (message, help) = (visible(self.message), self.help.map(visible));
        let title = level.primary_title(message).id(self.code);
        let place = [self.place, self.path].into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join("  ");
        let (source, labels) = self.window();
        let mut group = Group::with_title(title);
        if !place.is_empty() {
            group = group.element(Origin::path(visible(&place)));
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
        // The snippet has no path of its own, because the place above it says more; the renderer marks that with a line of
        // its own.
        // Without a snippet or a place, a gutter would lead nowhere.
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
        // Control characters would move the cursor; each becomes one blank of its own length in bytes.
        let shown =
            self.source[start..end].replace(|c: char| c.is_ascii_control(), " ").replace(char::is_control, "\u{a0}");
        let shift = |at: usize| cut(at).clamp(start, end) - start + before.len();
        let inside = |span: &Range<usize>| span.start >= start && span.start <= end;
        let labels = self
            .labels
            .iter()
            .filter(|(span, _)| inside(span))
            .map(|(span, text)| (shift(span.start)..shift(span.end.max(span.start)), visible(text)));
        (format!("{before}{shown}{after}"), labels.collect())
    }
}

/// A text without the characters that would move the cursor or change the colour.
fn visible(text: &str) -> String {
    text.replace(char::is_control, "\u{fffd}")
}

/// Whether a line holds nothing but this mark, perhaps in colour.
fn is_bare(line: &str, mark: &str) -> bool {
    let plain = line.split('\u{1b}').map(|part| part.trim_start_matches(|c| "[0123456789;m".contains(c)));
    line.contains(mark) && plain.flat_map(str::chars).filter(|c| *c != ' ').eq(mark.chars())
}
