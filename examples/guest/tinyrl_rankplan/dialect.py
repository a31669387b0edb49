"""TinyRL as a dialect."""

from __future__ import annotations

from rankplan import sdk

from tinyrl_rankplan.keys import KEYS

DIALECT = sdk.Dialect(
    name="tinyrl",
    system="TinyRL",
    keys=KEYS,
    job="tinyrl_rankplan.job:TinyJob",
    programs=(
        sdk.Program(r"tinyrl\.train"),
        sdk.Program(r"tinyrl\.evaluate", "evaluation"),
    ),
    trainer="tinyrl.train",
    writers={"": "tinyrl_rankplan.writing:written"},
    tried=sdk.Tried("1.0.0", "VERSION", named="tinyrl", project="pyproject.toml"),
)
