//! Diagnostics to exceptions of `rankplan.errors`, and to text.

use std::borrow::Cow;

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString, PyTuple};
use rankplan_core::render::Report;
use rankplan_core::{Code, Diagnostic};

/// Raises the faults of a result as `PlacementError`. `text` is the text that they point into, if any.
pub trait OrRaise<T> {
    fn or_raise(self, py: Python<'_>, text: Option<&str>) -> PyResult<T>;
}

impl<T> OrRaise<T> for Result<T, Vec<Diagnostic>> {
    fn or_raise(self, py: Python<'_>, text: Option<&str>) -> PyResult<T> {
        self.map_err(|faults| exception(py, text, faults).unwrap_or_else(|error| error))
    }
}

impl<T> OrRaise<T> for Result<T, Diagnostic> {
    fn or_raise(self, py: Python<'_>, text: Option<&str>) -> PyResult<T> {
        self.map_err(|fault| vec![fault]).or_raise(py, text)
    }
}

/// The content of a `str`. Raises `PlacementError` for lone surrogates, which Rust's text cannot contain.
pub fn text_of<'a>(text: &'a Bound<'_, PyString>) -> PyResult<Cow<'a, str>> {
    let lossy = text.to_string_lossy();
    let Some(at) = lossy.find('\u{fffd}').filter(|_| text.to_cow().is_err()) else { return Ok(lossy) };
    let fault = Diagnostic::new(Code::Syntax, "the text contains a lone surrogate, which is not a character")
        .help("write ranks with the ASCII digits 0-9")
        .label(at..at + '\u{fffd}'.len_utf8(), "");
    Err(fault).or_raise(text.py(), Some(&lossy))
}

fn exception(py: Python<'_>, text: Option<&str>, faults: Vec<Diagnostic>) -> PyResult<PyErr> {
    let list = objects(py, text, faults, false)?;
    Ok(PyErr::from_value(py.import("rankplan.errors")?.getattr("refusal")?.call1((list,))?))
}

/// Faults that refuse nothing, as diagnostics.
pub fn warnings(py: Python<'_>, faults: Vec<Diagnostic>) -> PyResult<Vec<Bound<'_, PyAny>>> {
    objects(py, None, faults, true)
}

/// Faults as `rankplan.errors.Diagnostic`.
fn objects<'py>(
    py: Python<'py>,
    text: Option<&str>,
    faults: Vec<Diagnostic>,
    warning: bool,
) -> PyResult<Vec<Bound<'py, PyAny>>> {
    let errors = py.import("rankplan.errors")?;
    let (diagnostic, label) = (errors.getattr("Diagnostic")?, errors.getattr("Label")?);
    let found_in = text.unwrap_or_default();
    let shared = text.map(|text| PyString::new(py, text)); // one text for all faults: it may be large
    let ascii = found_in.is_ascii();
    let chars = |at: usize| if ascii { at } else { found_in.get(..at).map_or(at, |before| before.chars().count()) };
    let object = |fault: Diagnostic| {
        let labels = fault
            .labels
            .iter()
            .map(|part| label.call1((chars(part.span.start), chars(part.span.end), part.text.as_str())))
            .collect::<PyResult<Vec<_>>>()?;
        let fields = PyDict::new(py);
        fields.set_item("help", fault.help)?;
        fields.set_item("labels", PyTuple::new(py, labels)?)?;
        fields.set_item("text", &shared)?;
        fields.set_item("warning", warning)?;
        diagnostic.call((fault.code.slug(), fault.message), Some(&fields))
    };
    faults.into_iter().map(object).collect()
}

/// Return the code of every rule. The list is closed.
#[pyfunction]
pub fn error_codes() -> Vec<&'static str> {
    Code::ALL.iter().map(|code| code.slug()).collect()
}

/// A text or `None`. File names and keys can contain lone surrogates, which become replacement characters.
fn lossy(value: &Bound<'_, PyAny>) -> PyResult<Option<String>> {
    if value.is_none() { Ok(None) } else { Ok(Some(value.cast::<PyString>()?.to_string_lossy().into_owned())) }
}

/// Return a `rankplan.errors.Diagnostic` as text with carets.
#[pyfunction]
pub fn render(diagnostic: &Bound<'_, PyAny>, color: bool) -> PyResult<String> {
    let text = |name| lossy(&diagnostic.getattr(name)?);
    let number = |name| diagnostic.getattr(name)?.extract::<Option<usize>>();
    let (code, message) = (text("code")?.unwrap_or_default(), text("message")?.unwrap_or_default());
    let (help, path, line) = (text("help")?, text("path")?.unwrap_or_default(), number("line")?);
    let place = [text("file")?, line.map(|n| n.to_string()), number("column")?.map(|n| n.to_string())];
    let source = text("source")?;
    let in_file = source.is_some();
    let (source, offset) = match source {
        Some(source) => (source, diagnostic.getattr("offset")?.extract()?),
        None => (text("text")?.unwrap_or_default(), 0),
    };
    let ascii = source.is_ascii();
    let byte =
        |at: usize| if ascii { at } else { source.char_indices().nth(at).map_or(source.len(), |(index, _)| index) };
    let mut labels = Vec::new();
    for label in diagnostic.getattr("labels")?.try_iter()? {
        let label = label?;
        let (start, end): (usize, usize) = (label.getattr("start")?.extract()?, label.getattr("end")?.extract()?);
        let word = lossy(&label.getattr("text")?)?.unwrap_or_default();
        labels.push((byte(start + offset)..byte(end + offset), word));
    }
    let report = Report {
        warning: diagnostic.getattr("warning")?.extract()?,
        code: &code,
        message: &message,
        help: help.as_deref(),
        place: &place.into_iter().flatten().collect::<Vec<_>>().join(":"),
        path: &path,
        source: &source,
        // Without the line itself, the source is the text alone, and the line number would be wrong.
        line: line.filter(|_| in_file),
        labels: labels.iter().map(|(span, word)| (span.clone(), word.as_str())).collect(),
    };
    Ok(report.render(color))
}
