"""What slots hold and what moves, element by element: plain Python sets on a fine grid, without boxes.

A tensor is a grid of layers, experts and columns. The grid is as coarse as the sizes of at most eight slots allow, so
that every part of a slot is a set of whole cells; `part` fails for others.
"""

from __future__ import annotations

from itertools import permutations
from typing import Any

from rankplan import Component

LAYER_CELLS = 1
"""Cells of a layer."""
COLUMNS = 8
EXPERTS = 8
"""Cells of the width, and of the experts."""

Cell = tuple[str, str, int, int, int]
"""State, tensor, and the indices of layer, expert and column."""


def params(model: dict[str, Any]) -> dict[str, tuple[int, str]]:
    """Return the parameters of each tensor of a layer, or of the whole model, and how it is divided."""
    hidden, heads = model["hidden_size"], model["num_attention_heads"]
    head = hidden // heads
    keys = model["num_key_value_heads"] * head
    tensors = {
        "attention": (2 * hidden * hidden, "tp"),
        "kv": (2 * hidden * keys, "kv"),
        "norms": (2 * hidden, "copied"),
        "embedding": (model["vocab_size"] * hidden, "first"),
        "output": (model["vocab_size"] * hidden, "last"),
        "final": (hidden, "last copied"),
    }
    if "num_experts" in model:
        tensors["router"] = (hidden * model["num_experts"], "copied")
        tensors["experts"] = (model["num_experts"] * 3 * hidden * model["moe_intermediate_size"], "experts")
    else:
        tensors["mlp"] = (3 * hidden * model["intermediate_size"], "tp")
    return tensors


def cell_bytes(cell: Cell, model: dict[str, Any], bytes_of: dict[str, float]) -> float:
    """Return the bytes of a cell."""
    size, divided = params(model)[cell[1]]
    cells = COLUMNS
    if divided in ("tp", "kv", "copied", "experts"):
        cells *= LAYER_CELLS
    if divided == "experts":
        cells *= EXPERTS
    return size * bytes_of[cell[0]] / cells


def part(count: int, index: int, parts: int) -> range:
    """Return one of equal parts of the cells 0 to count - 1."""
    assert count % parts == 0, (count, parts)
    return range(count * index // parts, count * (index + 1) // parts)


def held(component: Component, slot: int, model: dict[str, Any], kind: str) -> set[Cell]:
    """Return the cells that a slot holds; ``kind`` is ``megatron``, ``whole`` (undivided optimizer), ``fsdp`` ..."""
    at = component.layout.coordinates(slot)
    sizes = component.parallel
    tp, pp, dp = at.get("tp", 0), at.get("pp", 0), at.get("dp", 0)
    layers = part(model["num_hidden_layers"] * LAYER_CELLS, pp, sizes.pp)
    groups = component.layout.size("dp")
    cells: set[Cell] = set()
    for name, (_, divided) in params(model).items():
        columns, experts, rows = range(COLUMNS), range(1), layers
        index, count = dp, groups
        if divided in ("first", "last", "last copied"):
            if (divided == "first" and pp) or (divided != "first" and pp != sizes.pp - 1):
                continue
            rows = range(1)
        if divided in ("tp", "first", "last"):
            columns = part(COLUMNS, tp, sizes.tp)
        if divided == "kv":
            heads = model["num_key_value_heads"]
            columns = part(COLUMNS, tp * heads // sizes.tp, heads) if heads < sizes.tp else part(COLUMNS, tp, sizes.tp)
        if divided == "experts":
            if kind == "engine" and sizes.ep < sizes.tp:
                columns, experts = part(COLUMNS, tp, sizes.tp), range(EXPERTS)
            else:
                experts = part(EXPERTS, at.get("ep", 0), sizes.ep)
                index, count = (
                    (at.get("edp", 0), component.layout.size("edp"))
                    if sizes.ep > 1
                    else (tp + sizes.tp * dp, sizes.tp * groups)
                )
        inner = [columns[cell] for cell in part(len(columns), index, count)]
        upper = rows
        if kind == "fsdp":
            cells |= {("states", name, row, expert, column) for row in rows for expert in experts for column in inner}
            continue
        weights = {("weights", name, row, expert, column) for row in rows for expert in experts for column in columns}
        cells |= weights
        if kind == "megatron":
            if len(rows) > 1:
                upper, own = range(rows[0], rows[-1] + 1), [rows[cell] for cell in part(len(rows), index, count)]
                cells |= {
                    ("optimizer", name, row, expert, column) for row in own for expert in experts for column in columns
                }
            else:
                cells |= {
                    ("optimizer", name, row, expert, column) for row in upper for expert in experts for column in inner
                }
        elif kind == "whole":
            cells |= {("optimizer", *cell[1:]) for cell in weights}
    return cells


def places(component: Component) -> list[tuple[int, int | None]]:
    """Return the node and the local index of each slot."""
    return [component.layout.place(slot) for slot in range(component.slots)]


def worth(before: Component, after: Component, model: dict[str, Any], kind: str) -> list[list[tuple[float, int]]]:
    """Return, for each set and number, the bytes that it does not find on its devices, and its slots that stay."""
    bytes_of = {"weights": 2.0, "optimizer": 12.0, "states": 12.0}
    old = {place: slot for slot, place in enumerate(places(before))}
    have = {place: held(before, slot, model, kind) for place, slot in old.items()}
    shares = [held(after, slot, model, kind) for slot in range(after.slots)]
    where, sets = places(after), _sets(after)
    rows = []
    for mine in sets:
        row = []
        for others in sets:
            total, stay = 0.0, 0
            for slot, other in zip(mine, others, strict=True):
                there = have.get(where[slot], set())
                total += sum(cell_bytes(cell, model, bytes_of) for cell in shares[other] - there)
                if there == shares[other]:
                    number = old[where[slot]]
                    ranks = before.layout.process_of(number), after.layout.process_of(other)
                    same = before.layout.coordinates(number) == after.layout.coordinates(other)
                    stay += ranks[0] == ranks[1] and same
            row.append((total, stay))
        rows.append(row)
    return rows


def _sets(component: Component) -> list[list[int]]:
    """Return the slots of each data group; data groups with shards or experts in common are one set."""
    sizes, groups = component.parallel, component.layout.size("dp")
    together = groups if sizes.fsdp > 1 else 1
    while together * sizes.dense % sizes.expert:
        together += 1
    while groups % together:
        together += 1
    sets: list[list[int]] = [[] for _ in range(groups // together)]
    for slot in range(component.slots):
        sets[component.layout.coordinates(slot).get("dp", 0) // together].append(slot)
    return sets


def best(before: Component, after: Component, model: dict[str, Any], kind: str) -> tuple[float, int, tuple[int, ...]]:
    """Return the least bytes, the slots that stay, and the numbers, of all orders of the sets."""
    rows = worth(before, after, model, kind)
    found = []
    for order in permutations(range(len(rows))):
        total = sum(rows[index][number][0] for index, number in enumerate(order))
        stay = sum(rows[index][number][1] for index, number in enumerate(order))
        own = sum(index == number for index, number in enumerate(order))
        found.append((round(total), -stay, -own, order))
    total, stay, _, order = min(found)
    return total, -stay, order
