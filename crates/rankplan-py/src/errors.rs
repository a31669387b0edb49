//! Diagnostics to exceptions of `rankplan.errors`, and to text.

use std::borrow::Cow;

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString, PyTuple};
use rankplan_core::read::place::{Fault, Part, path_text};
use rankplan_core::read::reader::lone_surrogate;
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

impl<T> OrRaise<T> for Result<T, Vec<Fault>> {
    fn or_raise(self, py: Python<'_>, _text: Option<&str>) -> PyResult<T> {
        let raise = |faults: Vec<Fault>| {
            let faults = faults.into_iter().map(|fault| {
                let path = path_text(&fault.path);
                object(py, fault.diagnostic, fault.text.as_deref(), Some(path).filter(|path| !path.is_empty()), false)
            });
            refusal(py, faults.collect::<PyResult<_>>()?)
        };
        self.map_err(|faults| raise(faults).unwrap_or_else(|error| error))
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
    if text.to_cow().is_ok() {
        return Ok(lossy);
    }
    Err(lone_surrogate(&lossy)).or_raise(text.py(), Some(&lossy))
}

fn exception(py: Python<'_>, text: Option<&str>, faults: Vec<Diagnostic>) -> PyResult<PyErr> {
    refusal(py, objects(py, text, faults, false)?)
}

fn refusal(py: Python<'_>, faults: Vec<Bound<'_, PyAny>>) -> PyResult<PyErr> {
    Ok(PyErr::from_value(py.import("rankplan.errors")?.getattr("refusal")?.call1((faults,))?))
}

/// Faults that refuse nothing, as diagnostics.
pub fn warnings(py: Python<'_>, faults: Vec<Diagnostic>) -> PyResult<Vec<Bound<'_, PyAny>>> {
    objects(py, None, faults, true)
}

/// A fault without a text as `rankplan.errors.Diagnostic`.
pub fn diagnostic(py: Python<'_>, fault: Diagnostic) -> PyResult<Bound<'_, PyAny>> {
    object(py, fault, None, None, false)
}

/// Faults with their paths, each a tuple of keys and indexes.
pub fn located(py: Python<'_>, faults: Vec<Fault>) -> PyResult<Vec<(Bound<'_, PyTuple>, Bound<'_, PyAny>)>> {
    let located = |fault: Fault| {
        Ok((path_of(py, &fault.path)?, object(py, fault.diagnostic, fault.text.as_deref(), None, false)?))
    };
    faults.into_iter().map(located).collect()
}

/// The path of a fault as a tuple of keys and indexes.
fn path_of<'py>(py: Python<'py>, path: &[Part]) -> PyResult<Bound<'py, PyTuple>> {
    let parts = path.iter().map(|part| match part {
        Part::Key(key) => Ok(PyString::new(py, key).into_any()),
        Part::Index(index) => Ok(index.into_pyobject(py)?.into_any()),
    });
    PyTuple::new(py, parts.collect::<PyResult<Vec<_>>>()?)
}

/// Faults as `rankplan.errors.Diagnostic`.
fn objects<'py>(
    py: Python<'py>,
    text: Option<&str>,
    faults: Vec<Diagnostic>,
    warning: bool,
) -> PyResult<Vec<Bound<'py, PyAny>>> {
    let text = text.map(|text| Text::new(py, text)); // one text for all faults: it may be large
    faults.into_iter().map(|fault| text_object(py, fault, text.as_ref(), None, warning)).collect()
}

fn object<'py>(
    py: Python<'py>,
    fault: Diagnostic,
    text: Option<&str>,
    path: Option<String>,
    warning: bool,
) -> PyResult<Bound<'py, PyAny>> {
    text_object(py, fault, text.map(|text| Text::new(py, text)).as_ref(), path, warning)
}

/// The text that faults point into.
struct Text<'a, 'py> {
    text: &'a str,
    shared: Bound<'py, PyString>,
    ascii: bool,
}

impl<'a, 'py> Text<'a, 'py> {
    fn new(py: Python<'py>, text: &'a str) -> Self {
        Text { text, shared: PyString::new(py, text), ascii: text.is_ascii() }
    }

    /// The number of characters before a byte.
    fn chars(&self, at: usize) -> usize {
        if self.ascii { at } else { self.text.get(..at).map_or(at, |before| before.chars().count()) }
    }
}

fn text_object<'py>(
    py: Python<'py>,
    fault: Diagnostic,
    text: Option<&Text<'_, 'py>>,
    path: Option<String>,
    warning: bool,
) -> PyResult<Bound<'py, PyAny>> {
    let errors = py.import("rankplan.errors")?;
    let (diagnostic, label) = (errors.getattr("Diagnostic")?, errors.getattr("Label")?);
    let chars = |at: usize| text.map_or(at, |text| text.chars(at));
    let labels = fault
        .labels
        .iter()
        .map(|part| label.call1((chars(part.span.start), chars(part.span.end), part.text.as_str())))
        .collect::<PyResult<Vec<_>>>()?;
    let fields = PyDict::new(py);
    fields.set_item("help", fault.help)?;
    fields.set_item("labels", PyTuple::new(py, labels)?)?;
    fields.set_item("text", text.map(|text| &text.shared))?;
    fields.set_item("path", path)?;
    fields.set_item("warning", warning)?;
    diagnostic.call((fault.code.slug(), fault.message), Some(&fields))
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
