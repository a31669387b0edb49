"""The command that starts the trainer of a config, where no option and no job file states one."""

from __future__ import annotations

from collections.abc import Sequence

from rankplan.dialects import Dialect
from rankplan.errors import Diagnostic, Faults, PlacementError
from rankplan.front.faults import overridden_commands, starts_processes
from rankplan.front.job import Config, Job, job_file_of, name_of, notes
from rankplan.frozen import frozen
from rankplan.jobs.command import own_command


@frozen
class OwnCommand:
    """The command of a script, or why there is none."""

    text: str | None
    error: PlacementError | None = None


def command_of(config: Config, dialect: Dialect, overrides: Sequence[str] = (), *, is_here: bool = False) -> OwnCommand:
    """Return the command that starts the trainer of a config from this folder; ``overrides`` are those of options.

    ``is_here``: it starts on this machine, and not inside the job of a launcher.
    """
    stated = job_file_of(config)
    file = name_of(config) if stated is None else stated.job
    given = overrides if stated is None else (*stated.overrides, *overrides)
    try:
        text = own_command(file, file, given, system=dialect.system, example=dialect.trainer, is_here=is_here)
        return OwnCommand(text)
    except PlacementError as error:
        return OwnCommand(None, error)


def reject_without_ray(job: Job) -> None:
    """Raise `PlacementError` for a job whose system starts its processes without Ray."""
    if job.starts == "processes":
        raise PlacementError([starts_processes(job.name, job.dialect.system)])


def check_node_commands(job: Job) -> None:
    """Log what the commands of a job leave out, if it starts its processes without Ray.

    Raises `PlacementError` for what no file can have of them.
    """
    if job.starts != "processes":
        return
    collector = Faults()
    if job.config.values.commands(collector) and job.overrides:
        raise PlacementError([overridden_commands(job.name, job.overrides)])
    collector.finish()
    for warning in collector.warnings:
        _announce(job, warning)


def announce_without_ray(job: Job) -> None:
    """Log that the trainer of a config starts its processes without Ray, so that no plan is bound."""
    warning: Diagnostic | None = getattr(job.config.values, "not_on_ray", None)
    if warning is not None:
        _announce(job, warning)


def _announce(job: Job, warning: Diagnostic) -> None:
    place = job.name if warning.file is None else f"{warning.file}:{warning.line}"
    notes.warning("%s: warning[%s]: %s; %s", place, warning.code, warning.message, warning.help)
