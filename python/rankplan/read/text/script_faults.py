"""The faults and warnings of launch scripts, each without its place."""

from __future__ import annotations

from collections.abc import Sequence

from rankplan.errors import Diagnostic
from rankplan.read.text.other_trainers import PASS_A_JOB, trainer_of_program

_FOLDER = "run the check in the folder that the script runs in"
_MOST_NAMES = 3


def too_deep(file: str | None) -> Diagnostic:
    """Return the fault of a script whose commands are nested too deeply."""
    return Diagnostic("syntax", "the script is nested too deeply", "split it", file=file)


def places_nothing(program: str, config: str | None, *, known: bool) -> Diagnostic:
    """Return the fault of a training job without components; ``config`` is the one that it names, if that is known."""
    message = f"`{program}` starts a training job, but its values here place no process"
    if config is not None:
        message += f": its config `{config}` is not here" if known else ": a run decides which config it reads"
    return Diagnostic("no-components", message, f"{_FOLDER}, or pass the config of the job")


def starts_elsewhere(subject: str, script: str) -> Diagnostic:
    """Return the fault of a script that runs another one, which is missing."""
    message = f"{subject} starts no training job that rankplan reads: it runs {script}, which is not here"
    return Diagnostic("no-components", message, f"pass {script}, or {_FOLDER}")


def starts_nothing(subject: str, programs: Sequence[str], absent: str) -> Diagnostic:
    """Return the fault of a script that runs only these programs, none of which starts a training job.

    ``absent`` is one of them whose file is not here, so that nothing tells what it does; empty: there is none.
    """
    trainer = next((name for program in programs for name in [trainer_of_program(program)] if name), None)
    if trainer is not None:
        message = f"{subject} starts {trainer}, whose processes are all alike: it has no placement to check"
        return Diagnostic("no-components", message, PASS_A_JOB)
    what = f"it runs {_first(programs)}" if programs else "it only sets variables"
    message = f"{subject} starts no training job that rankplan reads: {what}"
    help = "pass the script that starts the job, with the key=value words or flags of its trainer"
    if absent:
        message += ", which is not here" if list(programs) == [absent] else f"; `{absent}` is not here"
        help = f"{_FOLDER}, or {help}"
    return Diagnostic("no-components", message, help)


def sets_itself(name: str, value: str) -> Diagnostic:
    """Return the fault of a given variable that the script sets itself."""
    message = f"`{name}={value}` has no effect: the script sets {name} itself"
    help = "override the key of the config that gets its value, or change this line"
    return Diagnostic("unknown-key", message, help)


def no_file(name: str) -> Diagnostic:
    """Return the warning of a config file that a command names, and that is missing."""
    message = f"the values of {name} are not read: no such file here"
    return Diagnostic("not-read", message, _FOLDER, warning=True)


def ignored_flag(key: str, program: str) -> Diagnostic:
    """Return the warning of a flag beside a config file, for a program that reads the file alone."""
    message = f"`{program}` ignores `--{key}`: it reads only its config file"
    return Diagnostic("not-read", message, f"write {key} in the file", warning=True)


def no_config(name: str, program: str) -> Diagnostic:
    """Return the warning of a config that a program loads with Hydra, and that is missing."""
    message = f"the config `{name}` of `{program}` is not read: no such file here; "
    message += "the usual defaults of the trainer stand in for its values"
    return Diagnostic("not-read", message, f"{_FOLDER}, or pass the config that Hydra has composed", warning=True)


def other_value(line: int, key: str, path: str, others: Sequence[int]) -> Diagnostic:
    """Return the warning of commands whose values differ from those of the command that is read.

    The warning is at the first one; ``others`` are their lines.
    """
    which = f"those on lines {_and(others)}, which have" if len(others) > 1 else "this one, which has"
    message = f"the command on line {line} is read, not {which} another `{key}`"
    help = "check a script with this command alone"
    return Diagnostic("not-run", message, help, path=path, warning=True)


def own_command(keys: Sequence[str], program: str) -> Diagnostic:
    """Return the warning of values that bash takes for a command, since the line before them ends the trainer's."""
    reach = "does not reach" if len(keys) == 1 else "do not reach"
    message = f"this line is a command of its own: {_first(keys)} {reach} `{program}`"
    help = "end the line before it with a backslash, and nothing after that: no comment, no blank"
    return Diagnostic("syntax", message, help, warning=True)


def own_program(program: str, trainer: str) -> Diagnostic:
    """Return the warning of a program with a name of its own, which may start other roles than the usual one."""
    like = f"`{trainer}`" if trainer else "the program that its system brings"
    message = f"`{program}` is read like {like}: the roles and pools of its own are not known"
    return Diagnostic("not-read", message, "compare the components with those that the program starts", warning=True)


def not_run(command: str) -> Diagnostic:
    """Return the warning of a command that only a run can follow."""
    help = "check that it changes no placement; override values on the command line: `-- key=value`"
    return Diagnostic("not-run", f"{command} is not run: what it changes is not read", help, warning=True)


def submitted_value(key: str, value: str | None, option: str, line: int, script: str) -> Diagnostic:
    """Return the warning of a value that an option of sbatch states, and that its command line may change."""
    message = f"`{key}` is {value}, as {option} says (line {line}); options of sbatch change it"
    return Diagnostic("not-run", message, f"for another value: rankplan check {script} -- {key}=VALUE", warning=True)


def unknown_value(key: str, cause: str, line: int, script: str, name: str) -> Diagnostic:
    """Return the warning of a value that only a run knows; a value for ``name`` decides it."""
    message = f"`{key}` is known only when the script runs: it depends on {cause} (line {line})"
    return Diagnostic("not-run", message, f"give its value: rankplan check {script} -- {name}=VALUE", warning=True)


def _and(lines: Sequence[int]) -> str:
    """Return the numbers of lines as a list in words."""
    *first, last = (str(line) for line in lines)
    return f"{', '.join(first)} and {last}" if first else last


def _first(names: Sequence[str]) -> str:
    """Return the first few of these names, each between backquotes."""
    listed = ", ".join(f"`{name}`" for name in names[:_MOST_NAMES])
    return f"{listed} ..." if len(names) > _MOST_NAMES else listed
