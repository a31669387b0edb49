//! The columns of a table for Python: as bytes for pickles and saved plans, and as NumPy arrays.

use std::iter::{once, repeat_n};

use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};
use rankplan_core::columns::Columns;
use rankplan_core::{Group, Inventory, ProcessRank, Table};

use crate::errors::OrRaise;

/// Columns, with numbers as little-endian bytes: groups, group starts, nodes, device starts, devices, devices elsewhere.
pub type State<'py> = (
    Vec<(String, String)>,
    Vec<(u32, u32)>,
    Bound<'py, PyBytes>,
    Bound<'py, PyBytes>,
    Bound<'py, PyBytes>,
    Vec<(u32, u32)>,
);

/// The columns of a table.
pub fn state<'py>(py: Python<'py>, table: &Table) -> PyResult<State<'py>> {
    let groups = table.groups().iter().map(|group| (group.label.clone(), group.kind.name().to_owned())).collect();
    let nodes = words(py, table.cluster_node_rank())?;
    let (starts, devices) = (words(py, table.device_starts())?, halves(py, table.devices())?);
    Ok((groups, table.group_starts().to_vec(), nodes, starts, devices, table.elsewhere().to_vec()))
}

/// The table of these columns; raises `PlacementError` if they contradict each other or the inventory.
pub fn table(py: Python<'_>, inventory: &Inventory, state: State<'_>) -> PyResult<Table> {
    let (groups, group_starts, nodes, starts, devices, elsewhere) = state;
    let words = |bytes: &Bound<'_, PyBytes>| {
        let (words, _) = bytes.as_bytes().as_chunks::<4>();
        words.iter().map(|word| u32::from_le_bytes(*word)).collect::<Vec<_>>()
    };
    let (halves, _) = devices.as_bytes().as_chunks::<2>();
    let columns = Columns {
        groups: groups.into_iter().map(|(label, kind)| Group { label, kind: kind.into() }).collect(),
        group_starts,
        cluster_node_rank: words(&nodes),
        device_starts: words(&starts),
        devices: halves.iter().map(|half| u16::from_le_bytes(*half)).collect(),
        elsewhere,
    };
    Table::from_columns(columns, inventory).or_raise(py, None)
}

/// The columns of these rows as NumPy arrays; `whole` if they are all rows in order, whose columns are then copied at once.
pub fn arrays<'py>(
    py: Python<'py>,
    table: &Table,
    ranks: impl Iterator<Item = u32> + Clone,
    whole: bool,
) -> PyResult<Bound<'py, PyDict>> {
    let (numpy, columns) = (py.import("numpy")?, PyDict::new(py));
    let set = |name, bytes: PyResult<Bound<'_, PyBytes>>, kind| {
        columns.set_item(name, numpy.call_method1("frombuffer", (bytes?, kind))?)
    };
    let len = ranks.clone().count();
    let (places, sizes) = (table.placement_node_rank(), table.local_world_size());
    let of_rows = |column: &[u32]| match whole {
        true => words(py, column),
        false => packed(py, len, ranks.clone().map(|rank| column[rank as usize].to_le_bytes())),
    };
    set("rank", packed(py, len, ranks.clone().map(u32::to_le_bytes)), "<u4")?;
    set("cluster_node_rank", of_rows(table.cluster_node_rank()), "<u4")?;
    set("placement_node_rank", of_rows(places), "<u4")?;
    set("local_rank", of_rows(table.local_rank()), "<u4")?;
    let sizes = ranks.clone().map(|rank| sizes[places[rank as usize] as usize].to_le_bytes());
    set("local_world_size", packed(py, len, sizes), "<u4")?;

    let devices_of = |rank| table.devices_of(ProcessRank(rank));
    let num_devices = ranks.clone().map(|rank| devices_of(rank).len()).sum();
    if whole && !table.device_starts().is_empty() {
        set("device_starts", words(py, table.device_starts()), "<u4")?;
        set("devices", halves(py, table.devices()), "<u2")?;
    } else {
        let ends = ranks.clone().scan(0, |end, rank| {
            *end += devices_of(rank).len() as u32;
            Some(*end)
        });
        set("device_starts", packed(py, len + 1, once(0).chain(ends).map(u32::to_le_bytes)), "<u4")?;
        let devices = ranks.clone().flat_map(|rank| &table.devices()[devices_of(rank)]);
        set("devices", packed(py, num_devices, devices.map(|device| device.to_le_bytes())), "<u2")?;
    }
    let nodes = if table.elsewhere().is_empty() {
        let here = |rank| repeat_n(table.cluster_node_rank()[rank as usize].to_le_bytes(), devices_of(rank).len());
        packed(py, num_devices, ranks.flat_map(here))
    } else {
        let rows = ranks.filter_map(|rank| table.row(ProcessRank(rank)));
        packed(py, num_devices, rows.flat_map(|row| row.places()).map(|(node, _)| node.0.to_le_bytes()))
    };
    set("device_node_rank", nodes, "<u4")?;
    Ok(columns)
}

/// Write `len` numbers into a `bytes` without copying them again.
pub fn packed<const SIZE: usize>(
    py: Python<'_>,
    len: usize,
    numbers: impl Iterator<Item = [u8; SIZE]>,
) -> PyResult<Bound<'_, PyBytes>> {
    PyBytes::new_with(py, SIZE * len, |bytes| {
        let (places, _) = bytes.as_chunks_mut::<SIZE>();
        places.iter_mut().zip(numbers).for_each(|(place, number)| *place = number);
        Ok(())
    })
}

fn words<'py>(py: Python<'py>, column: &[u32]) -> PyResult<Bound<'py, PyBytes>> {
    packed(py, column.len(), column.iter().map(|word| word.to_le_bytes()))
}

fn halves<'py>(py: Python<'py>, column: &[u16]) -> PyResult<Bound<'py, PyBytes>> {
    packed(py, column.len(), column.iter().map(|half| half.to_le_bytes()))
}
