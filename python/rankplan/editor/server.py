"""The language server over stdio, with pygls: buffers are checked as they are typed."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from importlib.metadata import version
from typing import Any, NamedTuple

from lsprotocol import types
from pygls import uris
from pygls.lsp.server import LanguageServer
from pygls.workspace import TextDocument

from rankplan.editor.checked import Checked, Options, checked, fix
from rankplan.editor.completion import cursor_at, proposals
from rankplan.editor.hover import hover_text
from rankplan.editor.keys import dialect_at
from rankplan.errors import Diagnostic

log = logging.getLogger("rankplan.editor")

_PAUSE = 0.1
"""Seconds without a change before a buffer is checked: less than one notices, more than between two keys."""

_KINDS = {
    "key": types.CompletionItemKind.Property,
    "word": types.CompletionItemKind.EnumMember,
    "group": types.CompletionItemKind.Reference,
    "component": types.CompletionItemKind.Reference,
    "code": types.CompletionItemKind.Constant,
}


class _Buffer(NamedTuple):
    """The text of a buffer as the editor has sent it, and the check of it."""

    source: str
    checked: Checked


class Server(LanguageServer):
    """The server, with the buffers that it checked last."""

    def __init__(self, options: Options, rules: Mapping[str, str]) -> None:
        # Whole texts: pygls would also count the line breaks of Unicode, which editors do not.
        super().__init__("rankplan", version("rankplan"), types.TextDocumentSyncKind.Full)
        self.options = options
        self.rules = rules
        """When each code is reported."""
        self._buffers: dict[str, _Buffer] = {}

    def buffer(self, uri: str) -> Checked | None:
        """Return a buffer with the check of its present text; ``None`` if the check itself fails, which is logged."""
        document = self.workspace.get_text_document(uri)
        last = self._buffers.get(uri)
        if last is not None and last.source == document.source:
            return last.checked
        try:
            result = checked(document.source, uris.to_fs_path(uri) or uri, self.options)
        except Exception:  # a bug of rankplan must not end the editor's server
            log.exception("cannot check %s", uri)
            return None
        self._buffers[uri] = _Buffer(document.source, result)
        return result

    def forget(self, uri: str) -> None:
        """Drop what is known of a buffer."""
        self._buffers.pop(uri, None)

    def publish(self, uri: str) -> None:
        """Send the diagnostics of a buffer."""
        buffer = self.buffer(uri)
        if buffer is None:
            return
        document = self.workspace.get_text_document(uri)
        diagnostics = [self.sent(document, buffer, diagnostic) for diagnostic in buffer.diagnostics]
        self.text_document_publish_diagnostics(types.PublishDiagnosticsParams(uri, diagnostics, document.version))

    def sent(self, document: TextDocument, buffer: Checked, diagnostic: Diagnostic) -> types.Diagnostic:
        """Return a diagnostic as the protocol has it."""
        message = diagnostic.message
        if diagnostic.help is not None:
            message = f"{message}\nhelp: {diagnostic.help}"
        related = []
        if diagnostic.file not in (None, buffer.file):
            line = (diagnostic.line or 1) - 1
            start = types.Position(line, (diagnostic.column or 1) - 1)
            place = types.Location(uris.from_fs_path(str(diagnostic.file)) or "", types.Range(start, start))
            related.append(types.DiagnosticRelatedInformation(place, diagnostic.message))
            message = f"{diagnostic.file}:{line + 1}: {message}"
        if diagnostic.source is not None:
            for label in diagnostic.labels[1:]:
                place = types.Location(document.uri, sent_range(document, buffer, buffer.range(diagnostic, label)))
                related.append(types.DiagnosticRelatedInformation(place, label.text or diagnostic.message))
        return types.Diagnostic(
            sent_range(document, buffer, buffer.range(diagnostic)),
            message,
            types.DiagnosticSeverity.Warning if diagnostic.warning else types.DiagnosticSeverity.Error,
            diagnostic.code,
            source="rankplan",
            related_information=related or None,
        )


def sent_range(document: TextDocument, buffer: Checked, place: types.Range) -> types.Range:
    """Return a range of characters in the units of the editor."""
    return document.position_codec.range_to_client_units(buffer.lines, place)


def server(options: Options, rules: Mapping[str, str]) -> Server:
    """Return a server that is ready to start. ``rules`` tells when each code is reported."""
    result = Server(options, rules)
    result.feature(types.INITIALIZE)(_initialize)
    result.feature(types.TEXT_DOCUMENT_DID_OPEN)(_opened)
    result.feature(types.TEXT_DOCUMENT_DID_CHANGE)(_changed)
    result.feature(types.TEXT_DOCUMENT_DID_SAVE)(_saved)
    result.feature(types.TEXT_DOCUMENT_DID_CLOSE)(_closed)
    result.feature(types.TEXT_DOCUMENT_HOVER)(_hover)
    result.feature(types.TEXT_DOCUMENT_COMPLETION, types.CompletionOptions(trigger_characters=[":", " ", "{"]))(
        _complete
    )
    kinds = types.CodeActionOptions([types.CodeActionKind.QuickFix])
    result.feature(types.TEXT_DOCUMENT_CODE_ACTION, kinds)(_actions)
    return result


def _initialize(server: Server, params: types.InitializeParams) -> None:
    options: Any = params.initialization_options
    if isinstance(options, Mapping):
        nodes = options.get("inventory") or options.get("nodes") or server.options.nodes
        dialect = options.get("dialect") or server.options.dialect
        server.options = Options(nodes, dialect, server.options.without)


def _opened(server: Server, params: types.DidOpenTextDocumentParams) -> None:
    server.publish(params.text_document.uri)


async def _changed(server: Server, params: types.DidChangeTextDocumentParams) -> None:
    uri, number = params.text_document.uri, params.text_document.version
    await asyncio.sleep(_PAUSE)
    document = server.workspace.text_documents.get(uri)
    if document is not None and document.version == number:
        server.publish(uri)


def _saved(server: Server, params: types.DidSaveTextDocumentParams) -> None:
    for uri in server.workspace.text_documents:  # others may extend the saved file
        server.forget(uri)
        server.publish(uri)


def _closed(server: Server, params: types.DidCloseTextDocumentParams) -> None:
    uri = params.text_document.uri
    server.forget(uri)
    server.text_document_publish_diagnostics(types.PublishDiagnosticsParams(uri, []))


def _hover(server: Server, params: types.HoverParams) -> types.Hover | None:
    uri = params.text_document.uri
    buffer = server.buffer(uri)
    if buffer is None:
        return None
    document = server.workspace.get_text_document(uri)
    at = document.position_codec.position_from_client_units(buffer.lines, params.position)
    parts = []
    for diagnostic in buffer.diagnostics:
        place = buffer.range(diagnostic)
        if place.start.line == at.line and place.start.character <= at.character <= place.end.character:
            code = diagnostic.code
            parts.append(f"`{code}`: {server.rules.get(code, '')} (`rankplan explain {code}`)")
    text = hover_text(buffer, at.line, at.character, server.options.dialect)
    if text is not None:
        parts.append(text)
    if not parts:
        return None
    return types.Hover(types.MarkupContent(types.MarkupKind.Markdown, "\n\n".join(dict.fromkeys(parts))))


def _complete(server: Server, params: types.CompletionParams) -> types.CompletionList:
    uri = params.text_document.uri
    buffer = server.buffer(uri)
    if buffer is None:
        return types.CompletionList(is_incomplete=False, items=[])
    document = server.workspace.get_text_document(uri)
    at = document.position_codec.position_from_client_units(buffer.lines, params.position)
    cursor = cursor_at(buffer.lines, at.line, at.character)
    before = buffer.lines[at.line][: at.character] if at.line < len(buffer.lines) else ""
    dialect = dialect_at(buffer.config, server.options.dialect)
    start = types.Position(at.line, at.character - len(cursor.word))
    place = sent_range(document, buffer, types.Range(start, types.Position(at.line, at.character)))
    items = [
        types.CompletionItem(
            proposal.label,
            kind=_KINDS[proposal.kind],
            detail=proposal.about or server.rules.get(proposal.label),
            text_edit=types.TextEdit(place, proposal.insert),
        )
        for proposal in proposals(cursor, buffer, before, dialect, server.rules)
    ]
    return types.CompletionList(is_incomplete=False, items=items)


def _actions(server: Server, params: types.CodeActionParams) -> list[types.CodeAction]:
    uri = params.text_document.uri
    buffer = server.buffer(uri)
    if buffer is None:
        return []
    document = server.workspace.get_text_document(uri)
    actions = []
    for diagnostic in buffer.diagnostics:
        place = sent_range(document, buffer, buffer.range(diagnostic))
        if place.end.line < params.range.start.line or place.start.line > params.range.end.line:
            continue
        change = fix(buffer, diagnostic, server.options)
        if change is None:
            continue
        edit = types.TextEdit(sent_range(document, buffer, change.place), change.new)
        action = types.CodeAction(
            change.title,
            types.CodeActionKind.QuickFix,
            [server.sent(document, buffer, diagnostic)],
            is_preferred=True,
            edit=types.WorkspaceEdit({uri: [edit]}),
        )
        actions.append(action)
    return actions
