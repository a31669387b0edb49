"""What keeps the needs of a plan from being known, for whoever asks for them."""

from __future__ import annotations

from rankplan.dialects.memory.faults import unnamed_model
from rankplan.errors import Diagnostic
from rankplan.memory.needs import Needs
from rankplan.memory.unknown import memory_unknown
from rankplan.read.memory_places import located
from rankplan.read.sources import Sources
from rankplan.read.text.reader import Reader

_KEYS_OF_MODELS = ("path", "model_path", "model_name", "pretrain", "model_name_or_path")


def unknown_memory(needs: Needs, reader: Reader, sources: Sources) -> tuple[Diagnostic, ...]:
    """Return the warnings of unknown phases, and of values, models and names of models that a run decides."""
    warnings = [located(reader, sources, component, warning) for component, warning in memory_unknown(needs)]
    warnings += sources.unknown_models.values()
    unnamed = sources.unnamed_model
    if unnamed is not None and not sources.unknown_models:
        warnings.append(reader.where(unnamed).locate(unnamed_model(unnamed)))
    if needs.silent:
        warnings += [warning for warning in reader.warnings if _names_model(warning)]
    return tuple(warnings)


def _names_model(warning: Diagnostic) -> bool:
    """Whether a value that only the run knows is the name of a model: the reason why nothing is said of its memory."""
    key = (warning.path or "").rpartition(".")[2]
    return warning.code == "not-run" and key in _KEYS_OF_MODELS
