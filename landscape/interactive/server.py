"""Serves the page of one file to this machine's own browser."""

from __future__ import annotations

import json
import secrets
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from collectors.validation import check_int

from .file_watch import FileWatch
from .page import SCRIPT_NAME, page_html, plotly_script

LOOPBACK = "127.0.0.1"


class WatchServer(ThreadingHTTPServer):
    """Serves a landscape file's page on the loopback interface.

    The address contains a random token and requests must name this server as their host, so that neither another
    user's program nor a web page that rebinds its name to this machine can read along.

    Args:
        path: the landscape file, which need not exist yet.
        port: where to listen; 0 lets the system choose.

    Raises:
        ImportError: plotly is not installed.
        LandscapeError: there is something that is no landscape file.
        OSError: the port is taken.
    """

    daemon_threads = True

    def __init__(self, path: Path, port: int = 0) -> None:
        check_int("port", port, 0, 65535)
        self.script = plotly_script().encode()
        self.watch = FileWatch(path)
        self.file_name = path.name
        self.token = secrets.token_urlsafe(16)
        try:
            super().__init__((LOOPBACK, port), _Handler)
        except OSError as error:
            raise OSError(f"port {port} of {LOOPBACK} cannot be used: {error.strerror}. Pass --port 0.") from error

    @property
    def address(self) -> str:
        """Where the page is."""
        return f"http://{LOOPBACK}:{self.server_port}/{self.token}/"

    def page(self) -> bytes:
        """Returns the page with what is in the file now."""
        news, _ = self.watch.look()
        landscape = self.watch.landscape
        shown = [] if landscape is None else [landscape]
        heading = self.file_name if landscape is None else None
        return page_html(shown, script=SCRIPT_NAME, live=news.to_json(), heading=heading).encode()

    def news(self, known: str) -> bytes:
        """Returns the file's state, and its contents where the caller knows another version."""
        news, content = self.watch.look()
        return json.dumps({**news.to_json(), "content": None if news.version == known else content}).encode()


class _Handler(BaseHTTPRequestHandler):
    server: WatchServer

    def do_GET(self) -> None:
        hosts = [f"{host}:{self.server.server_port}" for host in (LOOPBACK, "localhost")]
        if self.headers.get("Host", "") not in hosts:
            self._answer(HTTPStatus.FORBIDDEN, b"This server answers its own address only.\n", "text/plain")
            return
        path, _, query = self.path.partition("?")
        token, _, name = path.removeprefix("/").partition("/")
        if not secrets.compare_digest(token.encode(), self.server.token.encode()):
            self._answer(HTTPStatus.NOT_FOUND, b"There is nothing here.\n", "text/plain")
        elif name == "":
            self._answer(HTTPStatus.OK, self.server.page(), "text/html; charset=utf-8")
        elif name == "news":
            self._answer(HTTPStatus.OK, self.server.news(query.removeprefix("after=")), "application/json")
        elif name == SCRIPT_NAME:
            self._answer(HTTPStatus.OK, self.server.script, "text/javascript; charset=utf-8")
        else:
            self._answer(HTTPStatus.NOT_FOUND, b"There is nothing here.\n", "text/plain")

    def log_message(self, format: str, *arguments: object) -> None:
        """Says nothing: a page that asks every second would fill the terminal."""

    def _answer(self, status: HTTPStatus, body: bytes, kind: str) -> None:
        self.send_response(status)
        for name, value in (
            ("Content-Type", kind),
            ("Content-Length", str(len(body))),
            ("Cache-Control", "no-store"),
            ("X-Content-Type-Options", "nosniff"),
            ("Referrer-Policy", "no-referrer"),
            ("Cross-Origin-Resource-Policy", "same-origin"),
        ):
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)
