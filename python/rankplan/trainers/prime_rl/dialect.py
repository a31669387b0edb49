"""prime-rl as a dialect: TOML files, and commands that name them after ``@``."""

from __future__ import annotations

from rankplan.sdk import Dialect, Program, Tried
from rankplan.trainers.prime_rl.keys import KEYS

_ENTRYPOINTS = r"(src\.)?prime_rl\.entrypoints\."
_FILES = r" (@.*|--.*)"
"""The first word behind a name that other programs may have, too."""
_SFT = "supervised fine-tuning (SFT)"
_PART = "one component of an RL job"


def _programs(name: str, module: str, task: str = "", *, is_rl: bool = False, part: str = "") -> tuple[Program, ...]:
    """Return the program with a name (``[project.scripts]`` of pyproject.toml) and the module that it is."""
    patterns = (module, f"{name}{_FILES}")
    return tuple(Program(pattern, task, takes=("@", "flags"), is_rl=is_rl, part=part) for pattern in patterns)


DIALECT = Dialect(
    name="prime_rl",
    system="prime-rl",
    keys=KEYS,
    job="rankplan.trainers.prime_rl.job:PrimeJob",
    starts="processes",
    programs=(
        *_programs("rl", f"{_ENTRYPOINTS}rl"),
        *_programs("sft", f"{_ENTRYPOINTS}sft", _SFT),
        *_programs("inference", f"{_ENTRYPOINTS}inference", "serving of a model", part="server"),
        *_programs("evals?", f"{_ENTRYPOINTS}evals", "evaluation"),
        *_programs("orchestrator", f"{_ENTRYPOINTS}orchestrator", _PART, is_rl=True),
        *_programs("env-server", f"{_ENTRYPOINTS}env_server", _PART, is_rl=True),
        *_programs(
            "trainer", r"(src\.)?prime_rl\.trainer\.rl\.train|(src\.)?prime_rl\.entrypoints\.trainer", _PART, is_rl=True
        ),
        Program(r"(src\.)?prime_rl\.trainer\.sft\.train", _SFT, takes=("@", "flags")),
    ),
    trainer="rl",
    writers={"": "rankplan.trainers.prime_rl.writing:written"},
    unplaced="rankplan.trainers.prime_rl.no_job:other_task",
    tried=Tried("0.8.0", "pyproject.toml", named=r"name = .prime-rl['\"]"),
)
