"""``landscape plot --watch``: follows a file that is being written, for this machine's own browser only."""

import http.client
import json
import os
import re
import signal
import socket
import struct
import subprocess
import sys
import threading
from contextlib import ExitStack, contextmanager
from urllib.parse import urlsplit

import h5py
import numpy as np
import pytest
from data_sets import with_test_set
from landscape_examples import write_landscape
from typer.testing import CliRunner
from waiting import PATIENCE, wait_until

from landscape.cli import app
from landscape.commands.run_facts import charts
from landscape.curvature.curvature import Curvature
from landscape.curvature.data import CurvatureData
from landscape.errors import LandscapeFormatError
from landscape.interactive.watch import FileWatch, WatchServer
from landscape.record.checks import PointStatus
from landscape.record.writer import lock_landscape

pytest.importorskip("plotly")

MAIN = "from landscape.cli import main; main()"


def unfinished(example, rows=4, mode="full"):
    data = example(sampling={"mode": mode, "finished": False})
    data.status[rows:] = PointStatus.PENDING
    for values in data.metrics.values():
        values[rows:] = np.nan
    return data


def write(path, data, moment):
    write_landscape(path, data)
    os.utime(path, (moment, moment))


class Clock:
    """A clock that stands still until a test moves it."""

    def __init__(self):
        self.now = 1e9

    def __call__(self):
        return self.now


class CountingServer(WatchServer):
    """Counts the connections that it took and those that it has done with, and the rounds of its loop."""

    def __init__(self, *arguments, **look):
        self.taken = self.done = self.rounds = 0
        self._counting = threading.Lock()
        super().__init__(*arguments, **look)

    def process_request(self, request, client_address):
        self.taken += 1
        super().process_request(request, client_address)

    def process_request_thread(self, request, client_address):
        super().process_request_thread(request, client_address)
        with self._counting:
            self.done += 1

    def service_actions(self):
        super().service_actions()
        self.rounds += 1

    def wait_for_rounds(self):
        """Returns once the server has looked again at all its connections."""
        # The round that goes on may have looked already.
        later = self.rounds + 2
        wait_until(lambda: self.rounds >= later, what="the server's loop")


@contextmanager
def serving(path, **look):
    with CountingServer(path, **look) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


@pytest.fixture
def server(example, tmp_path):
    """A server of a measured landscape."""
    write_landscape(tmp_path / "a.h5", example())
    with serving(tmp_path / "a.h5") as found:
        yield found


def ask(server, path, method="GET", **headers):
    connection = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=PATIENCE)
    connection.request(method, path, headers=headers)
    answer = connection.getresponse()
    body = answer.read()
    connection.close()
    return answer, body


class TestFile:
    def test_from_waiting_to_complete(self, example, tmp_path):
        path, clock = tmp_path / "later" / "a.h5", Clock()
        watch = FileWatch(path, clock=clock)
        assert (watch.progress.phase, watch.progress.version) == ("waiting", "")
        assert f"Waiting for {path}" in watch.progress.text
        path.parent.mkdir()
        with lock_landscape(path):
            write(path, unfinished(example, 2), clock.now - 60)
            progress, content = watch.look()
            assert (progress.phase, progress.done, progress.total) == ("measuring", 26 + 12, 117 + 12)
            assert progress.text == "Measuring: 38 of 129 measured (29 %)."
            assert watch.look()[1] is content
            write(path, unfinished(example, 5), clock.now)
            progress, again = watch.look()
            assert again is not content
            assert progress.text == "Measuring: 77 of 129 measured (59 %), about 80 s left."
            # It counts down from the moment at which the file was written.
            clock.now += 35
            assert watch.look()[0].text == "Measuring: 77 of 129 measured (59 %), about 45 s left."
            # It takes longer than expected, and nobody knows how much.
            clock.now += 45
            assert watch.look()[0].text == "Measuring: 77 of 129 measured (59 %)."
        progress, _ = watch.look()
        assert progress.phase == "stopped"
        assert "no process of this machine is writing" in progress.text
        write_landscape(path, example())
        progress, _ = watch.look()
        assert (progress.phase, progress.text) == ("complete", "Complete: 129 of 129 measured (100 %).")
        path.unlink()
        assert watch.look()[0].phase == "complete"

    def test_failed_points_are_over_but_not_measured(self, example, tmp_path):
        path = tmp_path / "a.h5"
        for data, said in (
            (example(), "Complete: 124 of 129 measured (96 %), 5 failed."),
            (unfinished(example), "Stopped: 59 of 129 measured (45 %), 5 failed, and no process"),
        ):
            data.status[0, :5] = PointStatus.FAILED
            write_landscape(path, data)
            watch = FileWatch(path)
            assert watch.progress.text.startswith(said)
            with lock_landscape(path):
                now = watch.look()[0]
            assert now.done == (129 if data.complete else 64)
            if not data.complete:
                assert now.text == "Measuring: 59 of 129 measured (45 %), 5 failed."

    def test_a_share_is_complete_once_its_own_points_are_measured(self, example, tmp_path):
        data = example(sampling={"mode": "full", "finished": False, "share": "2of3"})
        for status in data.statuses:
            flat = status.reshape(-1)
            flat[np.arange(flat.size) % 3 != 1] = PointStatus.PENDING
        write_landscape(tmp_path / "a.h5", data)
        progress = FileWatch(tmp_path / "a.h5").progress
        total = sum(len(status.reshape(-1)[1::3]) for status in data.statuses)
        assert (progress.phase, progress.done, progress.total) == ("complete", total, total)
        assert "(100 %) of the share 2of3; `landscape merge` joins it with the others." in progress.text
        data.status.reshape(-1)[1] = PointStatus.PENDING
        write_landscape(tmp_path / "a.h5", data)
        progress = FileWatch(tmp_path / "a.h5").progress
        assert (progress.phase, progress.done, progress.total) == ("stopped", total - 1, total)

    def test_another_program_has_it_open(self, example, tmp_path):
        path = tmp_path / "a.h5"
        write_landscape(path, example())
        status = path.stat()
        with h5py.File(path, "r+"):
            watch = FileWatch(path)
            assert watch.progress.phase == "waiting"
            assert watch.progress.text == f"Waiting for {path}: another program has it open for writing."
        # Nothing was written.
        os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
        assert watch.look()[0].phase == "complete"

    def test_a_writer_that_died_writes_no_more(self, example, tmp_path):
        write_landscape(tmp_path / "a.h5", unfinished(example))
        gone = subprocess.Popen([sys.executable, "-c", ""])
        gone.wait()
        (tmp_path / ".a.h5.lock").write_text(str(gone.pid))
        assert FileWatch(tmp_path / "a.h5").progress.phase == "stopped"
        (tmp_path / ".a.h5.lock").write_text(str(os.getpid()))
        assert FileWatch(tmp_path / "a.h5").progress.phase == "measuring"

    def test_adaptive_sampling_may_end_sooner(self, example, tmp_path):
        clock = Clock()
        with lock_landscape(tmp_path / "a.h5"):
            write(tmp_path / "a.h5", unfinished(example, 2, "adaptive"), clock.now - 60)
            watch = FileWatch(tmp_path / "a.h5", clock=clock)
            write(tmp_path / "a.h5", unfinished(example, 5, "adaptive"), clock.now)
            assert ", at most about 80 s left." in watch.look()[0].text

    def test_no_landscape(self, example, tmp_path):
        (tmp_path / "a.h5").write_text("something else")
        with pytest.raises(LandscapeFormatError, match="is no landscape file"):
            FileWatch(tmp_path / "a.h5")
        write_landscape(tmp_path / "b.h5", example())
        watch = FileWatch(tmp_path / "b.h5")
        (tmp_path / "b.h5").write_text("something else")
        progress, content = watch.look()
        assert (progress.phase, content["name"]) == ("unreadable", "b.h5")
        assert "is no landscape file" in progress.text


def connected(server, begins=b"GET / HT"):
    found = socket.create_connection(("127.0.0.1", server.server_port), timeout=PATIENCE)
    found.sendall(begins)
    return found


def has_ended(connection):
    """Waits until the server says something or ends the connection, and returns whether it has ended it."""
    try:
        return connection.recv(1) == b""
    except ConnectionResetError:
        return True


def is_open(connection):
    """Returns whether a connection has not ended, and waits for nothing."""
    connection.setblocking(False)
    try:
        return bool(connection.recv(1))
    except BlockingIOError:
        return True
    except ConnectionResetError:
        return False
    finally:
        connection.settimeout(PATIENCE)


class TestConnections:
    @pytest.mark.slow
    def test_those_that_ask_nothing_keep_nobody_out(self, server):
        with ExitStack() as kept:
            idle = [kept.enter_context(connected(server, b"GET / HT" if at % 2 else b"")) for at in range(300)]
            answer, body = ask(server, urlsplit(server.address).path)
            assert (answer.status, body[:15]) == (200, b"<!doctype html>")
            assert all(map(has_ended, idle[:200]))
            wait_until(lambda: server.taken == 301, what=lambda: f"301 connections, now {server.taken}")
            # Each that is open has a thread.
            wait_until(lambda: server.taken - server.done <= 32, what=lambda: f"an end of all but {server.done}")

    def test_each_has_its_time(self, example, tmp_path):
        """A client that sends a letter now and then has no more of it."""
        write_landscape(tmp_path / "a.h5", example())
        clock = Clock()
        with serving(tmp_path / "a.h5", clock=clock) as server:
            with connected(server, b"") as silent, connected(server) as slow:
                wait_until(lambda: server.taken == 2, what="both connections")
                for _ in range(3):
                    clock.now += 9.9
                    slow.sendall(b"T")
                    server.wait_for_rounds()
                    assert is_open(silent)
                    assert is_open(slow)
                clock.now += 0.4
                assert has_ended(silent)
                assert has_ended(slow)
                assert ask(server, urlsplit(server.address).path)[0].status == 200

    def test_a_client_that_leaves_prints_nothing(self, server, capfd):
        for _ in range(5):
            request = (
                f"GET {urlsplit(server.address).path}plotly.min.js HTTP/1.1\r\nHost: localhost:{server.server_port}"
            )
            client = connected(server, f"{request}\r\n\r\n".encode())
            client.recv(10)
            # Closed at once, so that the rest of the answer finds nobody.
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            client.close()
        wait_until(lambda: server.done == 5, what=lambda: f"the end of 5 answers, now {server.done}")
        assert capfd.readouterr().err == ""

    def test_a_bug_of_ours_is_not_hidden(self, server, monkeypatch, capfd):
        monkeypatch.setattr(server, "page", lambda: 1 / 0)
        with pytest.raises(http.client.RemoteDisconnected):
            ask(server, urlsplit(server.address).path)
        wait_until(lambda: server.done == 1, what="the end of the answer")
        assert "ZeroDivisionError" in capfd.readouterr().err


class TestServer:
    def test_a_chart_whose_files_name_is_no_text(self, tmp_path):
        path = tmp_path / "c\udcff.h5"
        known, sizes = {"number": [0], "sha256": [""]}, {"pair": 1, "probe": 1, "step": 1}
        attributes = {
            "matrix": "hessian", "top": 1, "bottom": 0, "unit": "epoch", "weights": 1, "normalization": "none",
        }  # fmt: skip
        Curvature(CurvatureData.empty(known, sizes, attributes)).save(path)
        with WatchServer(path, charts=charts()) as server:
            assert "c?.h5" in server.page().decode()

    def test_answers_its_own_address_only(self, server):
        assert server.server_address[0] == "127.0.0.1"
        path = urlsplit(server.address).path
        answer, body = ask(server, path)
        assert (answer.status, body[:15]) == (200, b"<!doctype html>")
        assert answer.getheader("Cache-Control") == "no-store"
        assert "connect-src 'self'" in body.decode()
        assert ask(server, path, Host=f"localhost:{server.server_port}")[0].status == 200
        for host in ("evil.example", f"evil.example:{server.server_port}", "127.0.0.1", ""):
            assert ask(server, path, Host=host)[0].status == 403
        for wrong in ("/", "/progress", "/wrong-token/", "/../etc/passwd", path + "other", "/%00/"):
            assert ask(server, wrong)[0].status == 404
        assert ask(server, path, "POST")[0].status == 501

    def test_sends_data_only_when_they_changed(self, server):
        path = urlsplit(server.address).path
        first = json.loads(ask(server, path + "progress?after=")[1])
        assert first["content"]["name"] == "a.h5"
        again = json.loads(ask(server, path + f"progress?after={first['version']}")[1])
        assert again == {**first, "content": None}

    def test_the_first_look_is_the_users_and_what_comes_later_has_it_too(self, example, tmp_path):
        path = tmp_path / "a.h5"
        with serving(path, aspect="fill", camera="-100,20") as server:
            address = urlsplit(server.address).path
            waiting = ask(server, address)[1].decode()
            assert '"aspect": "fill"' in waiting
            assert '"camera": "-100,20"' in waiting
            write_landscape(path, example())
            content = json.loads(ask(server, address + "progress?after=")[1])["content"]
            for frame in content["frames"].values():
                assert frame["cameras"]["-100,20"] != frame["cameras"]["default"]

    @pytest.mark.parametrize(("option", "value"), [("aspect", "wide"), ("camera", "behind")])
    def test_an_unknown_look(self, tmp_path, option, value):
        with pytest.raises(ValueError, match=f"{option} must be .*{value}"):
            WatchServer(tmp_path / "a.h5", **{option: value})
        found = CliRunner().invoke(app, ["plot", str(tmp_path / "a.h5"), "--watch", f"--{option}", value, "--no-open"])
        assert isinstance(found.exception, ValueError)
        assert re.match(f"--{option} must be .*{value}", str(found.exception))

    def test_a_taken_port_and_a_wrong_one(self, tmp_path):
        with WatchServer(tmp_path / "a.h5") as server:
            with pytest.raises(OSError, match=r"cannot be used: .*Pass port=0"):
                WatchServer(tmp_path / "a.h5", server.server_port)
        with pytest.raises(ValueError, match="port must be"):
            WatchServer(tmp_path / "a.h5", 70000)


@pytest.mark.slow
class TestBrowser:
    def test_the_page_fills_in(self, example, tmp_path, open_address):
        path = tmp_path / "a.h5"
        with serving(path) as server:
            opened = open_address(server.address, ready=".live output", webgl=False)
            assert "it does not exist yet" in opened.page.inner_text(".live")
            with lock_landscape(path):
                write_landscape(path, unfinished(example))
                opened.wait("document.querySelector('.map .main-svg') !== null")
                assert "Measuring: 64 of 129" in opened.page.inner_text(".live")
                assert "pending (39)" in opened.page.inner_text(".warning")
                opened.choose("scale", "linear")
                opened.fill("[aria-label='x of the start']", "-1")
                write_landscape(path, example())
                opened.wait("document.querySelector('.live').dataset.phase === 'complete'")
            (z,) = opened.data("map", "grid", "z")
            np.testing.assert_array_equal(z, example().metrics["loss"])
            assert opened.page.evaluate("document.querySelector('progress').value") == 129
            assert opened.shapes("line")[0]["x0"] == -1
            assert opened.page.input_value("#scale") == "linear"
            assert opened.messages == []
            assert all(request.startswith(server.address) or request.startswith("data:") for request in opened.requests)

    def test_title_and_controls_are_those_of_the_file(self, example, tmp_path, open_address):
        """The page may be older than the file, and the file may hold another landscape later."""
        path = tmp_path / "a.h5"
        with serving(path) as server:
            opened = open_address(server.address, ready=".live output", webgl=False)
            assert opened.page.title() == opened.page.inner_text("h1") == "a.h5"
            write_landscape(path, example(network="LeNet"))
            opened.wait("document.querySelector('h1').textContent === 'LeNet, epochs 3 to 8'")
            opened.choose("metric", "loss_stderr")
            write_landscape(path, with_test_set(example(network="ResNet", checkpoints=0)))
            opened.wait("document.querySelector('h1').textContent === 'ResNet'")
            assert opened.page.title() == "ResNet"
            assert opened.page.locator("#beside, #shared").count() == 2
            assert opened.page.input_value("#metric") == "loss_stderr"
            opened.choose("beside", "loss@test")
            write_landscape(path, example(line=True))
            opened.wait("document.querySelector('.card.line .main-svg') !== null")
            assert opened.page.locator("#beside, #shared").count() == 0
            assert opened.page.locator(".card").count() == 1
            assert opened.messages == []


class TestCommand:
    def test_ends_cleanly_on_interrupt(self, tmp_path):
        process = subprocess.Popen(
            [sys.executable, "-W", "error", "-c", MAIN, "plot", "a.h5", "--watch", "--no-open"],
            cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            # A shell in the background has its children ignore the signal.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        )  # fmt: skip
        line = process.stdout.readline()
        assert re.fullmatch(r"Watching a\.h5 at http://127\.0\.0\.1:\d+/[\w-]{22}/\n", line)
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=PATIENCE)
        assert process.returncode == 0, errors
        assert "There is no file a.h5 yet" in errors
        assert "Stopped watching." in errors
        assert "Traceback" not in errors
