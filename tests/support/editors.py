"""An editor: a client of the Language Server Protocol over the pipes of a server."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from types import TracebackType
from typing import Any

START = [sys.executable, "-m", "rankplan", "lsp"]


class Editor:
    """One server, and the buffers that are open in it."""

    def __init__(self, *words: str, command: list[str] = START, options: Any = None, encoding: str = "utf-16") -> None:
        pipe = subprocess.PIPE
        self.process = subprocess.Popen([*command, *words], stdin=pipe, stdout=pipe, stderr=pipe)
        self.number = 0
        self.versions: dict[str, int] = {}
        self.published: list[dict[str, Any]] = []
        capabilities = {"general": {"positionEncodings": [encoding]}}
        given = {"processId": None, "rootUri": None, "capabilities": capabilities, "initializationOptions": options}
        self.capabilities = self.ask("initialize", given)["capabilities"]
        self.tell("initialized", {})

    def __enter__(self) -> Editor:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.communicate()

    def _send(self, message: dict[str, Any]) -> None:
        body = json.dumps({"jsonrpc": "2.0", **message}).encode()
        assert self.process.stdin is not None
        self.process.stdin.write(b"Content-Length: %d\r\n\r\n" % len(body) + body)
        self.process.stdin.flush()

    def _read(self) -> dict[str, Any]:
        stdout = self.process.stdout
        assert stdout is not None
        length = 0
        while (line := stdout.readline()) != b"\r\n":
            assert line, "the server has ended"
            name, _, value = line.partition(b":")
            length = int(value) if name.lower() == b"content-length" else length
        message: dict[str, Any] = json.loads(stdout.read(length))
        if message.get("method") == "textDocument/publishDiagnostics":
            self.published.append(message["params"])
        return message

    def tell(self, method: str, params: Any) -> None:
        self._send({"method": method, "params": params})

    def ask(self, method: str, params: Any) -> Any:
        """Return the answer to a request, or the text of its error."""
        self.number += 1
        self._send({"id": self.number, "method": method, "params": params})
        while (message := self._read()).get("id") != self.number or "method" in message:
            pass
        return message["error"]["message"] if "error" in message else message["result"]

    def _awaited(self, uri: str) -> list[dict[str, Any]]:
        version = self.versions[uri]
        while not (found := [one for one in self.published if one["uri"] == uri and one.get("version") == version]):
            self._read()
        result: list[dict[str, Any]] = found[-1]["diagnostics"]
        return result

    def open(self, path: Path, text: str) -> list[dict[str, Any]]:
        """Open a buffer, whatever the file contains, and return its diagnostics."""
        uri = path.as_uri()
        self.versions[uri] = self.versions.get(uri, 0) + 1
        document = {"uri": uri, "languageId": "yaml", "version": self.versions[uri], "text": text}
        self.tell("textDocument/didOpen", {"textDocument": document})
        return self._awaited(uri)

    def close(self, path: Path) -> None:
        self.tell("textDocument/didClose", {"textDocument": {"uri": path.as_uri()}})

    def change(self, path: Path, *changes: dict[str, Any]) -> list[dict[str, Any]]:
        """Change a buffer (``{"text": ...}``, with a ``range`` or as a whole), and return its diagnostics."""
        self.change_at_once(path, *changes)
        return self._awaited(path.as_uri())

    def change_at_once(self, path: Path, *changes: dict[str, Any]) -> None:
        uri = path.as_uri()
        self.versions[uri] += 1
        document = {"uri": uri, "version": self.versions[uri]}
        self.tell("textDocument/didChange", {"textDocument": document, "contentChanges": list(changes)})

    def at(self, what: str, path: Path, line: int, character: int) -> Any:
        """Ask for what is at a position: ``hover``, ``completion``."""
        position = {"line": line, "character": character}
        return self.ask(f"textDocument/{what}", {"textDocument": {"uri": path.as_uri()}, "position": position})

    def hover(self, path: Path, line: int, character: int) -> str:
        found = self.at("hover", path, line, character)
        return "" if found is None else str(found["contents"]["value"])

    def completion(self, path: Path, line: int, character: int) -> dict[str, dict[str, Any]]:
        return {one["label"]: one for one in self.at("completion", path, line, character)["items"]}

    def fixes(self, path: Path, diagnostic: dict[str, Any]) -> list[dict[str, Any]]:
        context = {"diagnostics": [diagnostic]}
        given = {"textDocument": {"uri": path.as_uri()}, "range": diagnostic["range"], "context": context}
        return list(self.ask("textDocument/codeAction", given))

    def shut_down(self) -> int:
        assert self.ask("shutdown", None) is None
        self.tell("exit", None)
        return self.process.wait(60)


def applied(text: str, edit: dict[str, Any]) -> str:
    """Return a text with an edit within a line, whose characters are in the basic plane."""
    lines = text.split("\n")
    start, end = edit["range"]["start"], edit["range"]["end"]
    line = lines[start["line"]]
    lines[start["line"]] = line[: start["character"]] + edit["newText"] + line[end["character"] :]
    return "\n".join(lines)
