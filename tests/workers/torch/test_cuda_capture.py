"""The order of the calls with which work is recorded, on a stand-in for ``torch.cuda``: PyTorch's needs a GPU.

It keeps what ``torch/cuda/graphs.py`` and ``CUDAGraph.cpp`` of PyTorch 2.13 keep: the current device and stream, the
recordings under way, and that a recording which failed cannot be ended. tests/benchmarks/gpu.py runs the real one.
"""

from __future__ import annotations

import contextlib
import warnings

import pytest
import torch

from workers.torch.cuda_graphs import capture_cuda_graph, waiting_is_an_error

SECOND = torch.device("cuda", 1)


class Gpus:
    """What of ``torch.cuda`` recording uses."""

    def __init__(self):
        self.current, self.streams, self.mode = 0, {0: "default of 0", 1: "default of 1"}, 0
        self.calls, self.underway, self.released, self.capturing = [], set(), [], False

    @contextlib.contextmanager
    def device(self, device):
        before, self.current = self.current, device.index
        try:
            yield
        finally:
            self.current = before

    def current_stream(self):
        return Stream(self, self.streams[self.current])

    def set_stream(self, stream):
        self.streams[self.current] = stream.name

    @contextlib.contextmanager
    def stream(self, stream):
        before, self.streams[self.current] = self.streams[self.current], stream.name
        try:
            yield
        finally:
            self.streams[self.current] = before

    def set_sync_debug_mode(self, mode):
        warnings.warn("Synchronization debug mode is a prototype feature", UserWarning, stacklevel=2)
        self.mode = mode

    def graph(self, graph, pool, stream):
        gpus = self

        class Recording:
            def __enter__(self):
                self.before = gpus.streams[gpus.current]
                gpus.streams[gpus.current], gpus.capturing = stream.name, True
                gpus.underway.add((gpus.current, pool))

            def __exit__(self, kind, *_):
                gpus.capturing = False
                if kind is not None:  # cudaStreamEndCapture is the first that fails, and nothing after it is done
                    raise RuntimeError("CUDA error: operation failed due to a previous error during capture")
                gpus.underway.remove((gpus.current, pool))
                gpus.streams[gpus.current] = self.before

        return Recording()

    def end(self, index, pool):
        if (index, pool) not in self.underway:
            raise RuntimeError("endAllocatePool: not currently recording to mempool_id")
        self.underway.remove((index, pool))

    def wait(self):
        """What ``.item()`` does."""
        if self.capturing:
            raise RuntimeError("operation not permitted when stream is capturing")
        if self.mode == 2:
            raise RuntimeError("called a synchronizing CUDA operation")

    def work(self):
        self.calls.append((self.current, self.streams[self.current], self.mode, self.capturing))
        return torch.ones(1)


class Stream:
    def __init__(self, gpus, name=None):
        self.name = name or f"side of {gpus.current}"

    def wait_stream(self, _stream):
        pass


class Graph:
    resets = replays = 0

    def reset(self):
        Graph.resets += 1

    def replay(self):
        Graph.replays += 1


class Generator:
    """Draws where it is, until a recording that fails keeps its state."""

    def __init__(self, state="being recorded"):
        self.state = state

    def clone_state(self):
        return Generator("a copy")

    def graphsafe_set_state(self, other):
        self.state = other.state


@pytest.fixture
def gpus(monkeypatch):
    found = Gpus()
    found.generators = (Generator(), Generator())
    monkeypatch.setattr(torch.cuda, "default_generators", found.generators)
    Graph.resets = Graph.replays = 0
    for name in ("device", "current_stream", "set_stream", "stream", "set_sync_debug_mode", "graph"):
        monkeypatch.setattr(torch.cuda, name, getattr(found, name))
    monkeypatch.setattr(torch.cuda, "Stream", lambda: Stream(found))
    monkeypatch.setattr(torch.cuda, "CUDAGraph", Graph)
    monkeypatch.setattr(torch.cuda, "graph_pool_handle", lambda: (1, 0))
    monkeypatch.setattr(torch.cuda, "get_sync_debug_mode", lambda: found.mode)
    monkeypatch.setattr(torch._C, "_cuda_endAllocateToPool", found.end)
    monkeypatch.setattr(torch._C, "_cuda_releasePool", lambda *place: found.released.append(place))
    return found


def assert_untouched(gpus):
    assert gpus.current == 0
    assert gpus.streams == {0: "default of 0", 1: "default of 1"}
    assert gpus.mode == 0
    assert not gpus.underway


def test_everything_happens_on_the_works_own_device(gpus):
    replay = capture_cuda_graph(gpus.work, SECOND)
    assert [call[:2] for call in gpus.calls] == [(1, "side of 1")] * 5
    assert [call[2] for call in gpus.calls] == [0, 0, 0, 2, 0]
    assert [call[3] for call in gpus.calls] == [False] * 4 + [True]
    assert replay().tolist() == [1]
    assert Graph.replays == 1
    assert gpus.released == []
    assert_untouched(gpus)


def test_what_waits_is_found_before_anything_is_recorded(gpus):
    def work():
        gpus.wait()
        return gpus.work()

    with warnings.catch_warnings():
        warnings.simplefilter("error")  # that the mode is a prototype is nobody's business
        with pytest.raises(RuntimeError, match="called a synchronizing CUDA operation"):
            capture_cuda_graph(work, SECOND)
    assert not any(call[3] for call in gpus.calls)
    assert Graph.resets == 0
    assert_untouched(gpus)


def test_a_recording_that_fails_leaves_nothing_behind_and_its_own_error(gpus):
    def work():
        if gpus.capturing:
            raise torch.OutOfMemoryError("CUDA out of memory.")
        return gpus.work()

    with pytest.raises(torch.OutOfMemoryError, match="CUDA out of memory"):
        capture_cuda_graph(work, SECOND)
    assert Graph.resets == 1
    assert gpus.released == [(1, (1, 0))]
    assert [generator.state for generator in gpus.generators] == ["being recorded", "a copy"]
    assert_untouched(gpus)


def test_a_recording_that_was_ended_is_not_ended_twice(gpus, monkeypatch):
    class Ended:
        def __enter__(self):
            pass

        def __exit__(self, *_):
            raise RuntimeError("Invalid capture.")

    monkeypatch.setattr(torch.cuda, "graph", lambda graph, pool, stream: Ended())
    with pytest.raises(RuntimeError, match="Invalid capture"):
        capture_cuda_graph(gpus.work, SECOND)
    assert gpus.released == []


def test_the_users_own_mode_comes_back(gpus):
    gpus.mode = 1
    with pytest.raises(RuntimeError, match="synchronizing"), waiting_is_an_error():
        gpus.wait()
    assert gpus.mode == 1
