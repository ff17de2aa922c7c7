"""Follows a file that a run is still writing, and serves its page: contents, progress, time left."""

from __future__ import annotations

import base64
import contextlib
import html
import io
import json
import secrets
import socket
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from collectors.errors import LandscapeError
from collectors.validation import check_choice, check_int

from ..drawing.camera import CameraChoice, offered_cameras
from ..drawing.canvas import save_figure
from ..errors import LandscapeLockedError, LandscapeNotFoundError
from ..grid.data import LandscapeData
from ..grid.landscape_file import read_landscape
from ..record.checks import PointStatus
from ..record.driver import Measured
from ..record.hdf5 import FileKind
from ..record.option import Share
from ..record.run import duration_text
from ..record.whole_file import kind_of
from ..record.writer import is_being_written
from ..sampling.sampling import share_of
from ..scales.frame import ASPECTS
from .content import landscape_content
from .page import SCRIPT_NAME, filled, page_html, plotly_script

if TYPE_CHECKING:
    from matplotlib.axes import Axes

LOOPBACK = "127.0.0.1"
# A browser opens six connections at a time and closes them after each answer.
# Nobody can keep others out by connections that ask nothing: late ones, and the oldest of too many, are ended.
_MOST_CONNECTIONS = 32
_SECONDS_OF_CONNECTION = 30.0
# The time left is estimated from the speed of the last minutes: a run may have been interrupted before.
_SECONDS_OF_SPEED = 120.0
# Until all is measured, a browser loads the page of a chart anew.
_SECONDS_OF_PAGE = 3


@dataclass(frozen=True)
class Chart:
    """How a kind of file that is no landscape is read and shown."""

    load: Callable[[Any], Any]
    draw: Callable[[Any], Axes]
    facts: Callable[[Any], str]  # what it holds, in words
    json: Callable[[Any], dict[str, Any]]  # what it holds, as JSON values


_NO_CHARTS: Mapping[FileKind, Chart] = {}


@dataclass(frozen=True)
class Progress:
    version: str  # changes whenever the file does; empty while there is none
    # "waiting" (no file yet), "measuring", "complete", "stopped" (unfinished, nobody is writing) or "unreadable".
    phase: str
    done: int  # points and checkpoints measured or failed so far
    total: int
    text: str


class FileWatch:
    """Reads a landscape, or a kind of ``charts``, anew after changes; ``record`` is None before there was one."""

    def __init__(
        self,
        path: Path,
        camera: CameraChoice | None = None,
        charts: Mapping[FileKind, Chart] = _NO_CHARTS,
        *,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._path, self._charts, self._clock = path, charts, clock
        _, self._cameras = offered_cameras(camera)
        self._lock = threading.Lock()
        self._stamp: tuple[int, ...] | None = None
        self.shown: tuple[Any, Chart | None] = None, None
        self._content: dict[str, Any] | None = None
        self._problem: LandscapeError | None = None
        self._locked = False
        self._history: deque[tuple[float, int]] = deque()
        self.progress = self._look()
        if self._problem is not None:
            raise self._problem

    def look(self) -> tuple[Progress, dict[str, Any] | None]:
        """Returns the progress, and the landscape as the page reads it."""
        with self._lock:
            self.progress = self._look()
            return self.progress, self._content

    @property
    def record(self) -> Any:
        return self.shown[0]

    def _look(self) -> Progress:
        try:
            status = self._path.stat()
            stamp = (status.st_ino, status.st_mtime_ns, status.st_size)
            if stamp != self._stamp and self._read(status.st_mtime):
                self._stamp = stamp
        except (FileNotFoundError, NotADirectoryError):
            self._problem = None
        except OSError as error:
            self._problem = LandscapeError(f"landscape file {self._path} cannot be read: {error.strerror}.")
        return self._state()

    def _read(self, written: float) -> bool:
        """Returns whether the file could be read to its end, or never will be as it is."""
        self._locked = False
        try:
            chart = self._charts.get(kind_of(self._path)) if self._charts else None
            record = chart.load(self._path) if chart else read_landscape(self._path)
        except LandscapeNotFoundError:
            return False  # it was removed; the next look will tell
        except LandscapeLockedError:
            self._locked = True
            return False
        except LandscapeError as error:
            self._problem = error
            return True
        self._problem = None
        self.shown = record, chart
        is_landscape = isinstance(record, LandscapeData)
        self._content = landscape_content(record, self._path.name, self._cameras) if is_landscape else None
        done, _ = _counts(self.record)
        if self._history and done < self._history[-1][1]:
            self._history.clear()  # another landscape took the file's place
        self._history.append((written, done))
        while len(self._history) > 2 and written - self._history[1][0] > _SECONDS_OF_SPEED:
            self._history.popleft()
        return True

    def _state(self) -> Progress:
        version = "" if self._stamp is None else "-".join(f"{number:x}" for number in self._stamp)
        if self._problem is not None:
            return Progress(version, "unreadable", 0, 0, str(self._problem))
        if self.record is None:
            why = "another program has it open for writing" if self._locked else "it does not exist yet"
            return Progress(version, "waiting", 0, 0, f"Waiting for {self._path}: {why}.")
        done, total = _counts(self.record)
        failed = sum(int((status == PointStatus.FAILED).sum()) for status in _own_statuses(self.record))
        measured = done - failed
        share = f"{measured} of {total} measured ({100 * measured // max(total, 1)} %)"
        share += f", {failed} failed" if failed else ""
        # Traces of a comparison come after its lines.
        if self.record.complete and (self.shown[1] is None or not is_being_written(self._path)):
            return Progress(version, "complete", done, total, f"Complete: {share}.")
        if (part := share_of(self.record.attributes)) and done == total:
            text = f"Complete: {share} of the share {part}; `landscape merge` joins it with the others."
            return Progress(version, "complete", done, total, text)
        if not is_being_written(self._path):
            text = f"Stopped: {share}, and no process of this machine is writing. The call that made it continues."
            return Progress(version, "stopped", done, total, text)
        return Progress(version, "measuring", done, total, f"Measuring: {share}{self._left(total)}.")

    def _left(self, total: int) -> str:
        (first, before), (last, done) = self._history[0], self._history[-1]
        if not (last > first and done > before):
            return ""
        seconds = (total - done) * (last - first) / (done - before)
        # What was measured since the file was written counts as well.
        seconds -= max(self._clock() - last, 0.0)
        if seconds < 1:
            return ""  # it takes longer than estimated, so nothing is known
        adaptive = (self.record.attributes.get("sampling") or {}).get("mode") == "adaptive"
        return f", {'at most ' if adaptive else ''}about {duration_text(seconds)} left"


class WatchServer(ThreadingHTTPServer):
    """Serves a file's page on the loopback interface, at ``port`` or, if that is 0, at a free one."""

    daemon_threads = True
    # Of the standard library's 5, each client more would wait for a second.
    request_queue_size = 128

    def __init__(
        self,
        path: Path,
        port: int = 0,
        *,
        aspect: str = "equal",
        camera: CameraChoice | None = None,
        charts: Mapping[FileKind, Chart] = _NO_CHARTS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        check_int("port", port, 0, 65535)
        self.aspect, self.camera = check_choice("aspect", aspect, ASPECTS), camera
        self.script = plotly_script().encode()
        self.watch = FileWatch(path, camera, charts)
        self.file_name = path.name
        self._clock = clock
        self.token = secrets.token_urlsafe(16)
        self._connections: dict[Any, float] = {}
        self._changing, self._drawing = threading.Lock(), threading.Lock()
        self._picture = "", ""
        try:
            super().__init__((LOOPBACK, port), _Handler)
        except OSError as error:
            raise OSError(f"port {port} of {LOOPBACK} cannot be used: {error.strerror}. Pass port=0.") from error

    @property
    def address(self) -> str:
        """Where the page is."""
        return f"http://{LOOPBACK}:{self.server_port}/{self.token}/"

    def process_request(self, request: Any, client_address: Any) -> None:
        """Answers a new connection in a thread of its own, and ends the oldest ones if there are too many."""
        with self._changing:
            self._connections[request] = self._clock()
            surplus = list(self._connections)[:-_MOST_CONNECTIONS]
        _end_all(surplus)
        super().process_request(request, client_address)

    def service_actions(self) -> None:
        """Ends the connections that have had their time; the server's loop calls this."""
        with self._changing:
            oldest = self._clock() - _SECONDS_OF_CONNECTION
            late = [request for request, begun in self._connections.items() if begun < oldest]
        _end_all(late)

    def shutdown_request(self, request: Any) -> None:
        """Closes a connection that was answered or ended."""
        with self._changing:
            self._connections.pop(request, None)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Says nothing of clients that left before their answer; a bug of ours has its traceback."""
        if not isinstance(sys.exc_info()[1], OSError):
            super().handle_error(request, client_address)

    def page(self) -> bytes:
        """Returns the page with what is in the file now."""
        progress, _ = self.watch.look()
        record, chart = self.watch.shown
        if chart is not None:
            with self._drawing:  # pictures share matplotlib's settings
                if self._picture[0] != progress.version:
                    self._picture = progress.version, _chart_picture(chart, record)
                picture, is_done = self._picture[1], progress.phase == "complete"
            facts, name, text = map(html.escape, (chart.facts(record), self.file_name, progress.text))
            again = "" if is_done else f'<meta http-equiv="refresh" content="{_SECONDS_OF_PAGE}">\n'
            parts = {"refresh": again, "name": name, "progress": text, "picture": picture, "facts": facts}
            return filled("chart.html", parts).encode()
        shown, heading = ([], self.file_name) if record is None else ([record], None)
        options: dict[str, Any] = {"aspect": self.aspect, "camera": self.camera, "heading": heading}
        return page_html(shown, script=SCRIPT_NAME, live=asdict(progress), **options).encode()

    def progress(self, known: str) -> bytes:
        """Returns the file's state, and its contents if the caller knows another version."""
        progress, content = self.watch.look()
        # The page that asks was made before the file showed that it is no landscape.
        changes = {"content": None if progress.version == known else content, "reload": self.watch.shown[1] is not None}
        return json.dumps({**asdict(progress), **changes}).encode()


class _Handler(BaseHTTPRequestHandler):
    server: WatchServer

    def do_GET(self) -> None:
        # Neither other users' programs nor a web page that rebinds its name to this machine may read the landscape.
        hosts = [f"{host}:{self.server.server_port}" for host in (LOOPBACK, "localhost")]
        if self.headers.get("Host", "") not in hosts:
            self._answer(HTTPStatus.FORBIDDEN, b"This server answers its own address only.\n", "text/plain")
            return
        path, _, query = self.path.partition("?")
        token, _, name = path.removeprefix("/").partition("/")
        allowed = secrets.compare_digest(token.encode(), self.server.token.encode())
        if allowed and name == "":
            self._answer(HTTPStatus.OK, self.server.page(), "text/html; charset=utf-8")
        elif allowed and name == "progress":
            self._answer(HTTPStatus.OK, self.server.progress(query.removeprefix("after=")), "application/json")
        elif allowed and name == SCRIPT_NAME:
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


def _end_all(connections: list[Any]) -> None:
    for connection in connections:
        # Its thread finds it at its end, and closes it.
        with contextlib.suppress(OSError):
            connection.shutdown(socket.SHUT_RDWR)


def _counts(record: Measured) -> tuple[int, int]:
    """Returns how many measurements are over, and how many there are; failed ones are over as well."""
    statuses = _own_statuses(record)
    done = sum(int(np.isin(status, (PointStatus.MEASURED, PointStatus.FAILED)).sum()) for status in statuses)
    return done, sum(status.size for status in statuses)


def _own_statuses(record: Measured) -> list[Any]:
    """Returns the statuses of what the file's job measures: of a share of a landscape, every so manieth."""
    share = Share.read(share_of(record.attributes)) or Share(1, 1)
    return [status.reshape(-1)[share.number - 1 :: share.count] for status in record.statuses]


def _chart_picture(chart: Chart, record: Any) -> str:
    """Returns the picture as HTML; nothing where nothing is measured yet."""
    if not any((status == PointStatus.MEASURED).any() for status in map(np.asarray, record.statuses)):
        return ""
    image = io.BytesIO()
    save_figure(chart.draw(record), image)
    data = base64.b64encode(image.getvalue()).decode()
    return f'<img src="data:image/png;base64,{data}" alt="The picture of the facts below.">\n'
