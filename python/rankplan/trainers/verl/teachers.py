"""The teachers of verl's distillation: engines on a pool of their own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from rankplan.sdk import Config, Placer, Taken, Where
from rankplan.trainers.verl import faults, keys
from rankplan.trainers.verl.engines import SECTIONS, Engines, read_engines
from rankplan.trainers.verl.pools import Pool, read_pool

_USUAL = "teacher_model"
"""The name of the teacher in verl's own config; named ones replace it."""


class Teacher(NamedTuple):
    """A teacher: its component, its engines, and how many it has."""

    name: str
    engines: Engines
    replicas: int

    @property
    def gpus(self) -> int:
        """The accelerators of its engines."""
        return self.replicas * self.engines.size


class Teachers(NamedTuple):
    """The pool of the teachers, and the teachers in the order in which they take its accelerators."""

    pool: Pool
    teachers: list[Teacher]
    where: Where

    def place(self, placer: Placer, taken: Taken, share: float) -> None:
        """Place the engines of every teacher, one after the other on their pool, unless it is empty."""
        if not taken:
            return
        start = 0
        for teacher in self.teachers:
            stop = start + teacher.gpus
            own = taken.slice(min(start, len(taken)), min(stop, len(taken)))
            teacher.engines.place(placer, teacher.name, own, self.pool.gpus_per_node, share)
            start = stop
        if not placer.faults and start != len(taken):
            placer.reject(self.where, faults.size_of_teachers(start, len(taken)))


def read_teachers(config: Config) -> Teachers | None:
    """Return the teachers if there are any."""
    if not config[keys.TEACHERS_ENABLED]:
        return None
    pool = read_pool(config.under(keys.TEACHERS), keys.TEACHER_POOL)
    models = config.under(keys.TEACHER_MODELS.path).section
    names = [name for name, teacher in models.items() if isinstance(teacher, Mapping)]
    named = [name for name in names if name != _USUAL]
    if named:
        teachers = [_teacher(config, name, f"teacher.{name}", 0) for name in named]
    else:
        teachers = [_teacher(config, name, "teacher", pool.gpus) for name in names]
    return Teachers(pool, teachers, config.where(keys.TEACHER_MODELS))


def _teacher(config: Config, name: Any, component: str, usual_gpus: int) -> Teacher:
    """Return a teacher; without a number of its engines, it has as many as fit on the usual accelerators."""
    section = config.under(keys.TEACHER_MODELS.path).inner(name)
    engines = read_engines(section.inner(SECTIONS["teacher"]))
    usual = usual_gpus // engines.size
    return Teacher(component, engines, section.get(keys.NUM_REPLICAS, usual, least=0) or usual)
