"""The commands as one program, and those that other packages add. Importing this module imports none of them."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

from rankplan.cli import signals
from rankplan.errors import printable
from rankplan.guests.doors import Door, Guest, GuestError, Table, guests, without_guests

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

GROUPS = {
    "Look at a job": {
        "check": "Report every fault in config files, with location and fix.",
        "plan": "Show where every process runs.",
        "show": "Show a map: nodes, their accelerators, the processes on them.",
        "diff": "Compare two configs or saved plans.",
        "explain": "Explain a rule by its code, with an example and the fix.",
    },
    "Look at a cluster": {
        "inventory": "Show the nodes as a tree, with their network and hardware.",
        "live": "Show what runs on a Ray cluster; compare it with a plan.",
    },
    "Decide on a placement": {
        "init": "Write a job file: nodes, rules and more, for any trainer.",
        "arrange": "Order nodes so that few parallel groups cross a domain.",
        "tune": "Find the fastest placement for measured times.",
        "replan": "Repair a saved plan after hardware failed.",
        "move": "Show how a running job gets from one plan to another.",
        "convert": "Write the placements of a config in another dialect.",
    },
    "Start a job": {
        "pin": "Run a Ray program with its groups bound to a plan.",
        "emit": "Write a plan as the file of a launcher.",
        "run": "Launch a config or saved plan, call every rank, verify.",
        "exec": "Start one rank, or all ranks of a node, without Ray.",
        "env": "Print the environment of one rank.",
    },
    "Edit configs": {
        "schema": "Print a JSON schema of configs and job files, for editors.",
        "lsp": "Serve editors over stdio: diagnostics, plans, completion, fixes.",
    },
}
"""The first line of each command's help, by group and name, in the order of use."""

COMMANDS = dict(sorted(pair for group in GROUPS.values() for pair in group.items()))
"""The first line of each command's help, by name, sorted."""

TABLE = Table(Door.COMMANDS, click.Command, {name: f"rankplan.cli.{name}:{name}" for name in COMMANDS})
"""The commands, and those of other packages."""

OVERRIDES = "rankplan.overrides"
"""The key, in the context of click, of the words after ``--``."""

_GUEST = "rankplan.guest"
"""The key, in the context of click, of the guest whose command runs."""

_NOT_OVERRIDING = frozenset({"explain", "schema", "diff", "inventory", "lsp", "move"})
"""Commands that read no config, or several."""

_WITH_COMMAND = frozenset({"exec", "pin"})
"""Commands that run what follows ``--``; overrides of their config follow ``--set``."""


def _keep_guests_out(ctx: click.Context, param: click.Parameter, value: object) -> None:
    if value:
        ctx.find_root().with_resource(without_guests())  # that of the command is left open if its words are wrong


no_guests_option = click.option(
    "--no-guests",
    is_flag=True,
    is_eager=True,  # names of guests are looked up while the other options are read
    expose_value=False,
    callback=_keep_guests_out,
    help="Ignore dialects, launchers and commands of other packages.",
)


@contextmanager
def _printable_errors() -> Iterator[None]:
    """Escape control characters in the message of a wrong usage: it repeats words of the command line."""
    try:
        yield
    except click.exceptions.NoArgsIsHelpError:
        raise  # its message is the help
    except click.ClickException as error:
        vars(error)["message"] = printable(error.message)  # click declares it final
        raise


def _guest_summaries() -> dict[str, str]:
    """Return where each command of another package comes from, by name: its help would need its code."""
    packages = {name: [guest.package for guest in guests(Door.COMMANDS)[name]] for name in TABLE.guest_names()}
    return {printable(name): f"From {printable(' and '.join(names))}." for name, names in packages.items()}


class Commands(click.Group):
    """The commands, each imported when it is used. They take overrides of their config after ``--``."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of the commands, sorted, and then those of other packages."""
        return list(TABLE)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import a command. A guest that cannot be imported ends the program with its fault."""
        try:
            with signals.at_once():
                return TABLE.get(cmd_name)
        except GuestError as error:
            if ctx.resilient_parsing:
                return None
            from rankplan.cli.output import show_error  # imports the core

            show_error(error)
            ctx.exit(1)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command; suggest one for an unknown name. ``help`` is the option before a command's name."""
        if args and args[0] == "help" and "help" not in TABLE:
            args = [*args[1:2], "--help"]
            if len(args) == 1:
                click.echo(ctx.get_help(), color=ctx.color)
                ctx.exit()
        if args and not args[0].startswith("-") and args[0] not in TABLE and not ctx.resilient_parsing:
            from rankplan.words import did_you_mean  # imports the core, which known commands import themselves

            raise click.UsageError(f"unknown command `{args[0]}`; {did_you_mean(args[0], TABLE)}", ctx)
        name, command, rest = super().resolve_command(ctx, args)
        if name is not None and name not in COMMANDS:
            ctx.meta[_GUEST] = TABLE.guest(name)
        return name, command, rest

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Return the commands and options that start like this, without importing a command."""
        from click.shell_completion import CompletionItem

        summaries = COMMANDS | _guest_summaries()
        names = [name for name in summaries if name.startswith(incomplete)]
        options = click.Command.shell_complete(self, ctx, incomplete)
        return [*(CompletionItem(name, help=summaries[name]) for name in names), *options]

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the list of commands without importing them."""
        width = max(map(len, COMMANDS))
        for title, group in GROUPS.items():
            with formatter.section(title):
                formatter.write_dl([(name.ljust(width), summary) for name, summary in group.items()])
        if guests := _guest_summaries():
            with formatter.section("Commands of other packages"):
                formatter.write_dl(list(guests.items()))

    def main(self, *arguments: Any, **keywords: Any) -> Any:
        """Run the command line. An output that takes no more, a help text's too, is an error without a traceback."""
        _open_closed_streams()
        try:
            return super().main(*arguments, **keywords)
        except OSError as error:
            from rankplan.cli.output import show_error  # imports the core

            show_error(error)
            sys.exit(1)
        finally:
            _drop_unwritten()

    def make_context(self, *arguments: Any, **keywords: Any) -> click.Context:
        """Escape control characters in errors about the words before the command."""
        with _printable_errors():
            return super().make_context(*arguments, **keywords)

    def invoke(self, ctx: click.Context) -> Any:
        """Escape control characters in errors about the words of the command. What a guest raises is a fault."""
        with _printable_errors():
            try:
                return super().invoke(ctx)
            except (click.ClickException, click.Abort, click.exceptions.Exit):
                raise
            except Exception as error:
                guest: Guest | None = ctx.meta.get(_GUEST)
                if guest is None:
                    raise
                from rankplan.cli.output import faults_end_it  # imports the core

                with faults_end_it(), guest.running():
                    raise error

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Keep the words after ``--`` as overrides. ``exec`` and ``pin`` run them, and guests read them."""
        name = next((word for word in args if not word.startswith("-")), None)
        is_overriding = name in COMMANDS and name not in _WITH_COMMAND
        if "--" in args[1:] and is_overriding and not ctx.resilient_parsing:
            dashes = args.index("--", 1)
            ctx.meta[OVERRIDES] = tuple(args[dashes + 1 :])
            if name in _NOT_OVERRIDING:
                raise click.UsageError(f"{name} takes no overrides after --", ctx)
            args = args[:dashes]
        return super().parse_args(ctx, args)


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="rankplan")
@no_guests_option
def main() -> None:
    """Decide where every process of a distributed RL job runs, check it, and launch it on Ray.

    Start with rankplan check FILE: the script or the config of your job. It says what is wrong, or how many processes
    run on how many nodes.

    Words after -- override values of the config: rankplan check verl.yaml -- trainer.nnodes=2 +a.b=3 ~c. pin and exec
    run these words as a command, and take overrides with --set. Besides YAML, a config can be the shell script that
    launches the job; a script is never run.

    Exit codes: 0 success, 1 faults in the input or the run, 2 wrong usage; diff has its own.

    For shell completion, add eval "$(_RANKPLAN_COMPLETE=bash_source rankplan)" to ~/.bashrc, or use zsh_source or
    fish_source for these shells.
    """
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # names may not fit the terminal's encoding


def _open_closed_streams() -> None:
    """Let a stream that the shell has closed (``>&-``) take everything."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(os.open(os.devnull, os.O_WRONLY), "w"))


def _drop_unwritten() -> None:
    """Drop what stdout does not take, on a full disk or a closed pipe: the interpreter would fail to write it."""
    if sys.stdout.closed:  # the language server closes it
        return
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
