"""Inference engines that trainers cut from a pool of accelerators, and why a pool does not suit them."""

from __future__ import annotations

from rankplan._core import Inventory as Core
from rankplan._core import Taken
from rankplan.errors import Diagnostic, Where
from rankplan.frozen import frozen
from rankplan.parallel import Parallel
from rankplan.read.text.sizes import Sizes
from rankplan.words import counted


@frozen
class Engine:
    """An inference engine: its number of accelerators, the keys that give it, and its sizes.

    ``path`` is the place of the largest size, ``where`` that of the section.
    """

    size: int
    keys: str
    parallel: Parallel | Sizes
    path: Where
    where: Where

    def size_fault(self, name: str, each: int, total: int) -> Diagnostic | None:
        """Return the fault of engines that ``each`` accelerators do not divide, or that do not use all of ``total``.

        ``each`` are those of a process. ``name`` is what messages call the component.
        """
        return _division_fault(name, self, each, total) or _idle_fault(name, self, total)


def engine_sizes(tp: int, pp: int, ep: int) -> Parallel:
    """Return the sizes of an engine; experts of an engine with pipeline stages are not counted."""
    return Parallel(tp=tp, pp=pp, ep=ep if pp == 1 else 1, order=Parallel.ENGINE_ORDER)


def engine_faults(name: str, engine: Engine, each: int, pool: Taken, core: Core) -> list[Diagnostic]:
    """Return the faults of engines on a pool, which are cut into processes of ``each`` accelerators."""
    total = len(pool)
    undivided = _division_fault(name, engine, each, total)
    if undivided is not None:
        return [undivided]
    faults = [_torn_fault(name, engine, each, pool, core), _idle_fault(name, engine, total)]
    return [fault for fault in faults if fault is not None]


def _division_fault(name: str, engine: Engine, each: int, total: int) -> Diagnostic | None:
    """Return the fault of an engine that is larger than its pool, or cannot be cut into processes."""
    if engine.size > total:
        pool = f"the {counted(total, 'accelerator')} of its pool"
        message = f"an engine of the {name} needs {engine.size} accelerators ({engine.keys}), more than {pool}: "
        return Diagnostic("parallel-idle", f"{message}none would start", f"use at most {total}, or a larger pool")
    if engine.size % each:
        message = f"an engine of {engine.size} accelerators ({engine.keys}) cannot be divided into nodes of {each}"
        return Diagnostic("not-multiple", message, f"use a multiple of {each}, or at most {each}")
    return None


def _idle_fault(name: str, engine: Engine, total: int) -> Diagnostic | None:
    """Return the fault of engines that do not use all of their pool."""
    idle = total % engine.size
    if not idle:
        return None
    fitting = next(size for size in range(engine.size - 1, 0, -1) if total % size == 0)
    message = f"engines of {engine.size} accelerators ({engine.keys}) leave {idle} of {total} of the {name}'s pool idle"
    help = f"use {fitting} per engine, or a pool of {total - idle} or {total - idle + engine.size}"
    return Diagnostic("parallel-idle", message, help)


def _torn_fault(name: str, engine: Engine, each: int, pool: Taken, core: Core) -> Diagnostic | None:
    """Return the fault of a process that would be on two nodes."""
    total = len(pool)
    torn = pool.slice(0, total // engine.size * engine.size).torn(core, each)
    if torn is None:
        return None
    chunk, first, last = torn
    number = chunk * each // engine.size
    message = (
        f"engine {number} of the {name} would need {each} accelerators ({engine.keys}) on nodes {first} and {last}"
    )
    whole = (size for size in range(each - 1, 0, -1) if total % size == 0 and pool.torn(core, size) is None)
    fitting = next(whole, None)
    help = "use nodes with more accelerators" if fitting is None else f"use {fitting} per engine"
    return Diagnostic("spans-nodes", message, help)
