"""``almakit watch``: serves the report of a running run to this machine only, read-only, and updates it. No torch
here."""

from __future__ import annotations

import hashlib
import html as escaping
import json
import threading
from collections.abc import Sequence
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from time import time_ns
from typing import Any

from ..errors import AlmakitError, BadInput
from . import page, subjects
from .page import Limits, Watch

HOST = "127.0.0.1"
HEADERS = (
    ("Cache-Control", "no-store"),
    ("X-Content-Type-Options", "nosniff"),
    ("X-Frame-Options", "DENY"),
    ("Referrer-Policy", "no-referrer"),
    ("Content-Security-Policy", "frame-ancestors 'none'"),
    ("Cross-Origin-Resource-Policy", "same-origin"),
)
WAITING = (
    "<!doctype html><meta charset=utf-8><meta http-equiv=refresh content=3>"
    '<link rel=icon href="data:,"><title>almakit watch</title><p>'
)


class Pages:
    """The page of these run folders, cached until a folder changes."""

    def __init__(self, folders: Sequence[str | Path], limits: Limits, seconds: float):
        self.folders, self.limits, self.seconds = [Path(folder) for folder in folders], limits, seconds
        self._lock = threading.Lock()
        self._version, self._page = "", b""

    def _facts(self) -> list[tuple[str, int, int]]:
        """Name, size and time of the folders' databases, without opening them."""
        facts = []
        for folder in self.folders:
            for file in sorted([*folder.glob("records*.sqlite"), *folder.glob("records*.sqlite-wal")]):
                try:
                    status = file.stat()
                except FileNotFoundError:  # a WAL may be merged and disappear at any time
                    continue
                facts.append((str(file), status.st_size, status.st_mtime_ns))
        return facts

    def version(self) -> str:
        """Changes when a database of the folders does."""
        return hashlib.sha256(json.dumps(self._facts()).encode()).hexdigest()[:16]

    def page(self) -> bytes:
        with self._lock:
            version = self.version()
            if version != self._version:
                self._page = page.render(subjects.load(self.folders), self.limits, Watch(version, self.seconds)).encode(
                    "utf-8"
                )
                self._version = version
            return self._page

    def state(self) -> dict[str, Any]:
        """The version and the seconds since the last change, which the page polls."""
        latest = max((changed for _, _, changed in self._facts()), default=None)
        return {"version": self.version(), "age": None if latest is None else max(0.0, time_ns() - latest) / 1e9}


class Server(ThreadingHTTPServer):
    """Serves two addresses, / and /state, to this machine."""

    daemon_threads = True

    def __init__(self, pages: Pages, port: int):
        self.pages = pages
        try:
            super().__init__((HOST, port), Handler)
        except (OSError, OverflowError) as error:
            raise BadInput(
                f"port {port} cannot be used ({error}); choose another one with --port, or 0 for any free one."
            ) from error

    @property
    def url(self) -> str:
        return f"http://{HOST}:{self.server_address[1]}/"


class Handler(BaseHTTPRequestHandler):
    """GET and HEAD of the page and its state; everything else is refused."""

    server: Server
    server_version, sys_version = "almakit", ""

    def do_GET(self) -> None:
        self._answer(body=True)

    def do_HEAD(self) -> None:
        self._answer(body=False)

    def _answer(self, body: bool) -> None:
        # A web page whose host name was made to point to this machine must not read the report.
        port = self.server.server_address[1]
        if self.headers.get("Host", "") not in (f"{HOST}:{port}", f"localhost:{port}"):
            return self._send(HTTPStatus.FORBIDDEN, "text/plain", b"almakit watch answers to 127.0.0.1 only.\n", body)
        if self.path == "/state":
            return self._send(HTTPStatus.OK, "application/json", json.dumps(self.server.pages.state()).encode(), body)
        if self.path != "/":
            return self._send(HTTPStatus.NOT_FOUND, "text/plain", b"There is only one page here: /\n", body)
        try:
            content, status = self.server.pages.page(), HTTPStatus.OK
        except AlmakitError as error:
            content, status = (WAITING + escaping.escape(str(error))).encode("utf-8"), HTTPStatus.SERVICE_UNAVAILABLE
        self._send(status, "text/html; charset=utf-8", content, body)

    def _send(self, status: HTTPStatus, kind: str, content: bytes, body: bool) -> None:
        self.send_response(status)
        for name, value in (("Content-Type", kind), ("Content-Length", str(len(content))), *HEADERS):
            self.send_header(name, value)
        self.end_headers()
        if body:
            self.wfile.write(content)

    def log_message(self, format: str, *values: object) -> None:
        """No log, because the page polls every few seconds."""
