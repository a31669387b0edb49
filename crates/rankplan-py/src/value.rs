//! Python objects to values, and back.

use std::collections::HashMap;

use pyo3::prelude::*;
use pyo3::types::{PyBool, PyByteArray, PyBytes, PyDict, PyFloat, PyInt, PyIterator, PyList, PyMapping, PyString};
use rankplan_core::read::value::{Float, Int, Other, Value};

use crate::rank_set::RankSet;

/// A deeper list or mapping is that of no file.
const DEEPEST: usize = 200;

/// The value of a Python object. Lists are tuples and other iterables, too. A list or mapping that is met again is shared.
pub fn value_of(object: &Bound<'_, PyAny>) -> PyResult<Value> {
    Conversion { known: HashMap::new() }.value(object, 0)
}

/// The value of a mapping with only some of its keys, in its order.
pub fn value_of_keys(mapping: &Bound<'_, PyAny>, keys: &[&str]) -> PyResult<Value> {
    let mut conversion = Conversion { known: HashMap::new() };
    let mut pairs = Vec::new();
    for key in mapping.try_iter()? {
        let key = key?;
        let Ok(name) = key.extract::<String>() else { continue };
        if keys.contains(&name.as_str()) {
            pairs.push((name.into(), conversion.value(&mapping.get_item(key)?, 0)?));
        }
    }
    Ok(Value::Map(pairs.into()))
}

struct Conversion<'py> {
    /// Lists and mappings by their address; they are kept, so that no other one gets it.
    known: HashMap<usize, (Bound<'py, PyAny>, Value)>,
}

impl<'py> Conversion<'py> {
    fn value(&mut self, object: &Bound<'py, PyAny>, depth: usize) -> PyResult<Value> {
        if object.is_none() {
            return Ok(Value::Null);
        }
        if let Ok(value) = object.cast::<PyBool>() {
            return Ok(Value::Bool(value.is_true()));
        }
        if let Ok(text) = object.cast::<PyString>() {
            return match text.to_cow() {
                Ok(text) => Ok(Value::from(&*text)),
                Err(_) => Ok(other(object, Some(text.to_string_lossy().into_owned()))),
            };
        }
        if object.is_instance_of::<PyInt>() {
            return Ok(int(object));
        }
        if let Ok(number) = object.cast::<PyFloat>() {
            let written = number.repr().ok().map(|text| text.to_string_lossy().into());
            return Ok(Value::Float(Float { value: number.value(), written }));
        }
        if let Ok(ranks) = object.cast::<RankSet>() {
            return Ok(Value::Ranks(ranks.get().0.clone().into()));
        }
        if let Some((_, value)) = self.known.get(&(object.as_ptr() as usize)) {
            return Ok(value.clone());
        }
        if depth > DEEPEST || object.is_instance_of::<PyBytes>() || object.is_instance_of::<PyByteArray>() {
            return Ok(other(object, None));
        }
        // A list in itself is shown as dots.
        let within = Value::Other(Other { shown: "...".to_owned(), text: None }.into());
        self.known.insert(object.as_ptr() as usize, (object.clone(), within));
        let value = self.collection(object, depth)?;
        self.known.insert(object.as_ptr() as usize, (object.clone(), value.clone()));
        Ok(value)
    }

    /// A mapping, an iterable, or a number of another type as a value; any other object as the text that shows it.
    fn collection(&mut self, object: &Bound<'py, PyAny>, depth: usize) -> PyResult<Value> {
        let mut pairs = Vec::new();
        if let Ok(dict) = object.cast::<PyDict>() {
            for (key, item) in dict {
                pairs.push((self.value(&key, depth + 1)?, self.value(&item, depth + 1)?));
            }
            return Ok(Value::Map(pairs.into()));
        }
        if let Ok(mapping) = object.cast::<PyMapping>() {
            for key in mapping.keys()? {
                pairs.push((self.value(&key, depth + 1)?, self.value(&mapping.get_item(&key)?, depth + 1)?));
            }
            return Ok(Value::Map(pairs.into()));
        }
        if let Ok(number) = object.call_method0("__index__") {
            return Ok(int(&number));
        }
        if let Ok(items) = PyIterator::from_object(object) {
            let items = items.map(|item| self.value(&item?, depth + 1));
            return Ok(Value::List(items.collect::<PyResult<_>>()?));
        }
        match object.call_method0("__float__").and_then(|number| number.extract()) {
            Ok(value) => Ok(Value::Float(Float { value, written: Some(shown(object).into()) })),
            Err(_) => Ok(other(object, None)),
        }
    }
}

/// A whole number, with its text if its source writes it in another way, or if it is too large.
fn int(number: &Bound<'_, PyAny>) -> Value {
    let plain = number.is_exact_instance_of::<PyInt>();
    let found = number.extract::<i64>();
    let written = || number.repr().ok().map_or_else(|| shown(number), |text| text.to_string_lossy().into_owned());
    let value = *found.as_ref().unwrap_or(if number.lt(0).unwrap_or(false) { &i64::MIN } else { &i64::MAX });
    Value::Int(Int { value, written: (!plain || found.is_err()).then(|| written().into()) })
}

fn other(object: &Bound<'_, PyAny>, text: Option<String>) -> Value {
    Value::Other(Other { shown: shown(object), text }.into())
}

/// An object as messages show it.
fn shown(object: &Bound<'_, PyAny>) -> String {
    let words = object.py().import("rankplan.words").and_then(|words| words.getattr("shown")?.call1((object,)));
    words.and_then(|text| text.extract()).unwrap_or_default()
}

/// A value as a Python object.
pub fn to_python<'py>(py: Python<'py>, value: &Value) -> PyResult<Bound<'py, PyAny>> {
    Ok(match value {
        Value::Null => py.None().into_bound(py),
        Value::Bool(value) => PyBool::new(py, *value).to_owned().into_any(),
        Value::Int(number) => match &number.written {
            Some(written) if [i64::MIN, i64::MAX].contains(&number.value) => {
                py.get_type::<PyInt>().call1((&**written,))?
            }
            _ => number.value.into_pyobject(py)?.into_any(),
        },
        Value::Float(number) => PyFloat::new(py, number.value).into_any(),
        Value::Text(text) => PyString::new(py, text).into_any(),
        Value::Other(other) => PyString::new(py, &other.shown).into_any(),
        Value::Ranks(ranks) => Bound::new(py, RankSet(ranks.as_ref().clone()))?.into_any(),
        Value::List(items) => {
            let items = items.iter().map(|item| to_python(py, item)).collect::<PyResult<Vec<_>>>()?;
            PyList::new(py, items)?.into_any()
        }
        Value::Map(pairs) => {
            let dict = PyDict::new(py);
            for (key, item) in pairs.iter() {
                dict.set_item(to_python(py, key)?, to_python(py, item)?)?;
            }
            dict.into_any()
        }
    })
}
