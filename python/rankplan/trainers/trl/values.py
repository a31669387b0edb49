"""The keys of a trainer of TRL: from flags and YAML, or from its program in Python."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

from rankplan.sdk import Config, Key, Where
from rankplan.sdk.words import as_int
from rankplan.trainers.trl import keys
from rankplan.trainers.trl.literals import Literal, Program, read_program

T = TypeVar("T")

_FLAGS_ONLY = ("trl", "trl.scripts.grpo", "trl.scripts.rloo", "src.open_r1.grpo", "open_r1.grpo")
"""Programs whose keys are flags and YAML, wherever their files are."""


class Values:
    """The values of a trainer's keys, and what is unknown about them.

    ``unknown`` says why the program decides keys that are not read; it is empty if all are known.
    """

    def __init__(self, config: Config) -> None:
        self._config = config
        names = {key.path for key in keys.PLACING}
        file = config.program_file
        self.program: Program | None = read_program(Path(file), names) if file else None
        self._file = file
        self.unknown = self._unknown()

    def _unknown(self) -> str:
        name = self._config.program
        if not name or name.split(" ")[0] in _FLAGS_ONLY or name.startswith("trl"):
            return ""
        if self.program is None:
            if self._config.stated(keys.USE_VLLM) or self._config.stated(keys.MODE):
                return ""
            return "the program makes no config of TRL" if self._file else "the program is not here"
        if self.program.takes_flags:
            return ""
        if self.program.is_open:
            return "it passes arguments by **"
        literal = self.program.literals.get(keys.USE_VLLM.path)
        mode = self.program.literals.get(keys.MODE.path)
        if any(value is not None and not value.is_known for value in (literal, mode)):
            return "it computes the keys"
        return ""

    @property
    def place(self) -> Where:
        """The place of the config."""
        return self._config.place

    @property
    def literals(self) -> Mapping[str, Literal]:
        """The keys that the program sets."""
        return {} if self.program is None else self.program.literals

    @property
    def states_timeout(self) -> bool:
        """Whether the time that the trainer waits for its server is stated, or may be in its program."""
        return bool(self.unknown) or self.program is not None or "vllm_server_timeout" in self._config.section

    @property
    def takes_flags(self) -> bool:
        """Whether the trainer takes its keys as flags, as far as is known."""
        return self.program is None or self.program.takes_flags

    @property
    def has_own_flags(self) -> bool:
        """Whether the flags are those of the program itself, so that TRL refuses none of them."""
        return self.program is not None and not self.program.takes_flags

    @property
    def trainer(self) -> str:
        """The trainer, as the name of its config begins: ``GRPO`` unless the program tells."""
        if self.program is not None:
            return self.program.trainer
        name = self._config.program.rpartition(".")[2]
        if "async_grpo" in name:
            return "AsyncGRPO"
        if "rloo" in name:
            return "RLOO"
        return "OnlineDPO" if any(other in name for other in ("online_dpo", "nash_md", "xpo")) else "GRPO"

    def __getitem__(self, key: Key[T]) -> T:
        literal = self.literals.get(key.path)
        if literal is None:
            return self._config[key] if self.takes_flags else _default(key, self._config)
        value = _typed(key, literal.value)
        return _default(key, self._config) if value is None else value

    def is_known(self, key: Key[Any]) -> bool:
        """Return whether the value of a key is the one that the trainer gets."""
        if self.unknown:
            return False
        literal = self.literals.get(key.path)
        if literal is not None:
            return literal.is_known
        return not (self.takes_flags and self._config.is_known_when_run(key))

    def stated(self, key: Key[Any]) -> bool:
        """Return whether a value of a key is stated."""
        return key.path in self.literals or (self.takes_flags and self._config.stated(key))

    def where(self, *several: Key[Any]) -> Where:
        """Return the place of the first of these keys that is stated, else that of the program."""
        for key in several:
            literal = self.literals.get(key.path)
            if literal is not None:
                width = max(literal.end - literal.column + 1, 1)
                place = literal.line, literal.column, literal.source, literal.column - 1, width
                return Where(key.path, self._file, *place)
        return self._config.where(*several)


def _default(key: Key[T], config: Config) -> T:
    default: T = key.default(config) if callable(key.default) else key.default  # type: ignore[assignment]
    return default


def _typed(key: Key[Any], value: Any) -> Any:
    """Return a literal as the type of its key, ``None`` for one of another type."""
    if key.is_switch:
        return value if isinstance(value, bool) else None
    if isinstance(key.default, int) or key in (keys.NUM_GENERATIONS, keys.STEPS_PER_GENERATION, keys.GENERATION_BATCH):
        return as_int(value)
    return value if isinstance(value, str) else None
