"""``rankplan lsp``: check configs in an editor while they are typed."""

from __future__ import annotations

import click

from rankplan.cli.common import Choice, config_options
from rankplan.cli.output import faults_end_it, silent


@click.command()
@config_options
def lsp(choice: Choice) -> None:
    """Serve editors over stdio: diagnostics, plans, completion, fixes.

    An editor starts this command, and speaks the Language Server Protocol with it. It shows what "rankplan check" finds
    in the text that is typed, the plan of the component under the cursor, and the quick fixes that a help line states.

    Requires pip install 'rankplan[lsp]'. The guide "In your editor" has the settings of editors.
    """
    try:
        import pygls  # noqa: F401
    except ImportError:
        raise click.ClickException("the editor server needs pygls: pip install 'rankplan[lsp]'") from None
    from rankplan.cli.explain import rules
    from rankplan.editor.checked import Options
    from rankplan.editor.server import server

    with faults_end_it(), silent():
        nodes = choice.given if choice.ray is None else choice.inventory  # ask a live cluster once
        options = Options(nodes, choice.dialect, choice.without)
        server(options, {code: rule.when for code, rule in rules().items()}).start_io()
