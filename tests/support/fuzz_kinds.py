"""The files that are damaged: what they are when they are whole, how they are read, what may be changed in them."""

import contextlib
import json
import math
import os
import pickle
import pickletools
import warnings
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from hypothesis import strategies as st
from landscape_examples import build
from numpy.typing import NDArray

from collectors.errors import CheckpointError, LandscapeError, RunDirectoryError
from collectors.networks.weight_space import describe_arrays
from collectors.run_directory import RunDirectory
from collectors.run_directory.metadata import NamedFile, RunMetadata
from collectors.run_directory.settings import LandscapeSettings
from collectors.weights.foreign_checkpoint import read_checkpoint
from collectors.weights.safetensors_file import CheckpointFile, write_checkpoint
from landscape import Comparison, Curvature, Landscape, Plane, pca_plane
from landscape.comparison.comparison import comparison_json, comparison_text
from landscape.comparison.data import MEASURES, ComparisonData
from landscape.curvature.data import CurvatureData
from landscape.curvature.facts import curvature_json, curvature_text
from landscape.errors import LandscapeDamagedError, LandscapeFormatError, LandscapeIdentityError, PlaneError
from landscape.facts import sampling_text, summary_text
from landscape.functions import connect, measure_curvature
from landscape.grid.landscape_file import landscape_bytes
from landscape.grid.samples import KeptLosses
from landscape.paths.path import Path as CurvePath
from landscape.record.checks import PointStatus, SamplingReport
from landscape.record.hdf5 import COMPARISON, CONTENTS, CURVATURE, LANDSCAPE
from landscape.record.identity import check_identity
from landscape.record.record import record_bytes
from landscape.record.whole_file import read_file_attributes
from landscape.record.workers import continued_plan
from workers.measurement_plan import MeasurementPlan

Draw = Callable[[Any], Any]

SECRET = 12345.678
_JSON_ATTRIBUTES = ("identity", "intervals", "measurement_plan", "notes", "sampling", "versions")
_NUMBERS = (0, 1, 2, 3)
_HOSTILE_NAMES = ("../secret/secret.safetensors", "{secret}/secret.safetensors", "..\\secret.safetensors", "/dev/zero",
                  "\\\\server\\share", "file:///etc/passwd", "s3://bucket/key", "~/.ssh/id_rsa", "")  # fmt: skip
_INTEGERS = st.sampled_from((0, -1, 2**31, 2**40, 2**62, 2**64, 10**400)) | st.integers()
_JSON = st.recursive(
    st.none() | st.booleans() | _INTEGERS | st.floats() | st.text(max_size=20) | st.sampled_from(_HOSTILE_NAMES),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4) | st.just("1"), inner, max_size=3),
    max_leaves=6,
)


class Play:
    """One kind of file in a run directory of its own, and a ``secret`` directory beside it that must not be opened.

    Reading the damaged ``path`` may end with the ``expected`` errors; only ``inside`` may be read.
    """

    expected: tuple[type[Exception], ...]

    def __init__(self, folder):
        self.inside, self.secret = folder.resolve() / "run", folder.resolve() / "secret"
        self.inside.mkdir(parents=True)
        self.secret.mkdir()
        self.path = self.make()
        self.whole = self.path.read_bytes()

    def make(self):
        """Writes the whole file, and the secret."""
        raise NotImplementedError

    def read(self):
        """Reads the file, and uses all that it holds."""
        raise NotImplementedError

    def change(self, draw):
        """Damages the file where its meaning lies."""
        raise NotImplementedError

    def mended(self, content, random):
        """Returns changed bytes such that they are looked at further than the first checksum or length."""
        return content


def _change_json(draw, content, values=_JSON):
    """Puts other values at a few places of a JSON object."""
    for _ in range(draw(st.integers(1, 3))):
        place = content
        while True:
            key = draw(st.sampled_from(sorted(place) if isinstance(place, dict) else range(len(place))))
            inner = place[key]
            if not isinstance(inner, dict | list) or not inner or draw(st.booleans()):
                break
            place = inner
        place[key] = draw(values)


class Metadata(Play):
    """``train_metadata.json`` of a run whose checkpoints are whole."""

    expected = (RunDirectoryError,)
    arrays: dict[str, NDArray[Any]]

    def make(self):
        folder = self.inside / "ckpt_dir"
        folder.mkdir()
        own = {"weight": np.arange(6.0, dtype=np.float32).reshape(2, 3), "count": np.array(3)}
        shared = {"bias": np.arange(2.0, dtype=np.float32)}
        self.arrays = own | shared
        secrets = {"weight": np.full((2, 3), SECRET, np.float32), "bias": np.full(2, SECRET, np.float32)}
        write_checkpoint(self.secret / "secret.safetensors", secrets)
        (folder / "link.safetensors").symlink_to(self.secret / "secret.safetensors")
        files = {number: f"net_{number}_step.safetensors" for number in _NUMBERS}
        digests = {number: write_checkpoint(folder / name, own) for number, name in files.items()}
        frozen = NamedFile("net_frozen.safetensors", write_checkpoint(folder / "net_frozen.safetensors", shared))
        settings = LandscapeSettings.from_dict({"intervals": [_NUMBERS], "unit": "step"})
        path = folder / "train_metadata.json"
        path.write_text(RunMetadata(settings, files, digests, 4, network={"name": "net"}, frozen=frozen).to_json())
        self.names = {item.name for item in folder.iterdir()}
        return path

    def read(self):
        run = RunDirectory(self.inside)
        space = describe_arrays(self.arrays)
        for number in sorted(run.settings.numbers | set(run.metadata.files))[:50]:
            with contextlib.suppress(CheckpointError):
                checkpoint = run.checkpoint(number, space)
                for name in ("weight", "bias"):
                    assert not (checkpoint.read(name) == np.float32(SECRET)).any()
            with contextlib.suppress(CheckpointError):
                assert run.checkpoint_path(number).name in self.names
        assert run.missing(run.settings.intervals[0]) is not None

    def change(self, draw):
        content = json.loads(self.whole)
        _change_json(draw, content, _JSON | st.sampled_from((*_HOSTILE_NAMES, "link.safetensors")))
        text = json.dumps(content).replace("{secret}", str(self.secret))
        self.path.write_text(text if draw(st.integers(0, 9)) else text.replace("{", '{"a":' * 5000))


class Checkpoint(Play):
    """A safetensors file."""

    expected = (CheckpointError,)

    def make(self):
        path = self.inside / "net_3_step.safetensors"
        state = {"matrix": np.ones((7, 5), np.float32), "half": np.ones(3, np.float16), "empty": np.zeros((0, 4))}
        write_checkpoint(path, state, {"network": "Net"})
        return path

    def read(self):
        file = CheckpointFile(self.path)
        for name, shape in file.shapes.items():
            assert file.read(name).shape == shape
        assert read_checkpoint(self.path).tensors

    def parts(self):
        """Returns the header, and the data behind it."""
        length = int.from_bytes(self.whole[:8], "little")
        return json.loads(self.whole[8 : 8 + length]), self.whole[8 + length :]

    def change(self, draw):
        header, data = self.parts()
        for _ in range(draw(st.integers(1, 3))):
            name = draw(st.sampled_from(sorted(header)) | st.text(max_size=5))
            if draw(st.integers(0, 3)) or not isinstance(header.get(name), dict):
                # One that is right but for a single claim comes furthest.
                shape = draw(st.lists(_INTEGERS | st.integers(0, 9), max_size=40))
                start = draw(_INTEGERS | st.integers(0, 20))
                stop = draw(_INTEGERS | st.just(start + 4 * math.prod(shape)))
                dtype = draw(st.sampled_from(("F32", "U8", "F8_E4M3", "BOOL", "X", 3)))
                header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [start, stop]}
            else:
                key = draw(st.sampled_from(sorted(header[name])) | st.text(max_size=4))
                header[name] = {**header[name], key: draw(_JSON)}
        text = json.dumps(header).encode("utf-8", "surrogatepass")
        claimed = draw(st.just(len(text)) | st.sampled_from((0, 2**31, 2**40, 2**63, len(text) + 1)))
        self.path.write_bytes(
            claimed.to_bytes(8, "little") + text + data + bytes(draw(st.sampled_from((0, 0, 1, 4096))))
        )
        if draw(st.integers(0, 19)) == 0:
            with self.path.open("r+b") as file:
                file.truncate(2**42)  # a sparse file that takes no room but has the size

    def mended(self, content, random):
        if random.integers(2) and len(content) > 8:
            length = int.from_bytes(self.whole[:8], "little") + len(content) - len(self.whole)
            return max(0, length).to_bytes(8, "little") + content[8:]
        return content


class PlaneFile(Checkpoint):
    """A plane as a safetensors file, whose facts are JSON in its header."""

    expected = (CheckpointError, PlaneError)
    facts = "plane"

    def make(self):
        states = [{"w": weights, "b": np.ones(2)} for weights in np.random.default_rng(0).normal(size=(4, 2, 3))]
        plane = pca_plane(states, network=describe_arrays(states[0]), numbers=[0, 3, 5, 9])
        return Path(plane.save(self.inside / "plane.safetensors"))

    def read(self):
        plane = Plane.load(self.path)
        assert repr(plane)
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            with contextlib.suppress(LandscapeError, ValueError):
                assert len(plane.axes(3)[0]) >= 3
            with contextlib.suppress(LandscapeError):
                assert plane.project([plane.origin]).coordinates.shape == (1, plane.dimension)

    def change(self, draw):
        if draw(st.booleans()):
            super().change(draw)
            return
        header, data = self.parts()
        content = json.loads(header["__metadata__"][self.facts])
        _change_json(draw, content)
        header["__metadata__"][self.facts] = json.dumps(content)
        text = json.dumps(header).encode("utf-8", "surrogatepass")
        self.path.write_bytes(len(text).to_bytes(8, "little") + text + data)


def _network(seed):
    import torch

    torch.manual_seed(seed)
    return torch.nn.Linear(3, 2)


def _callback_fn():
    import torch

    return torch.nn.MSELoss(), _network(0), (torch.ones(4, 3), torch.ones(4, 2)), {}


class PathFile(PlaneFile):
    """A curve between two networks as a safetensors file."""

    facts = "path"

    def make(self):
        found = connect(_network(0), _network(1), _callback_fn, steps=2, device_ids=[0], progress=False)
        return Path(found.save(self.inside / "path.safetensors"))

    def read(self):
        path = CurvePath.load(self.path)
        with contextlib.suppress(LandscapeError), np.errstate(all="ignore"):
            assert repr(path)
            assert path.point(0.5)
        assert path.losses.ndim == 1


class VectorsFile(PlaneFile):
    """The eigenvectors beside a curvature file."""

    expected = (LandscapeDamagedError, LandscapeIdentityError)
    facts = "space"

    def make(self):
        self.curvature = self.inside / "a.h5"
        measure_curvature(
            _network(0), _callback_fn, top=2, keep_vectors=True, output=self.curvature, device_ids=[0], progress=False
        )
        return self.inside / "a_vectors_0.safetensors"

    def read(self):
        for direction in Curvature.load(self.curvature).vectors(0):
            assert set(direction) == {"weight", "bias"}


class LandscapeFile(Play):
    """A landscape file; what is changed in it is either its bytes or what HDF5 says it holds."""

    kind = LANDSCAPE
    expected = (LandscapeDamagedError, LandscapeFormatError)

    def make(self):
        data = build()
        data.attributes |= {
            "measurement_plan": MeasurementPlan(8, 2).to_json(),
            "notes": ["a note"],
            "sampling": {"mode": "adaptive", "finished": True}
            | SamplingReport(0.01, False, 10, 5, 2, 0.001, 1, 3, 0.001, 0.0005, 0.63, 4, True).to_json(),
        }
        kept = data.kept_samples["main"] = KeptLosses("main", data.shape, 4, np.arange(4), np.ones(4))
        for flat in np.flatnonzero(data.status == PointStatus.MEASURED):
            kept.store(int(flat), np.arange(4, dtype=np.float32))
        path = self.inside / "landscape_1-9_pca.h5"
        path.write_bytes(landscape_bytes(data))
        with h5py.File(self.secret / "secret.h5", "w") as file:
            for name in ("loss", "accuracy", "status", "x", "y", "group/x", "group/loss"):
                file[name] = np.full((3, 5), SECRET)
        (self.secret / "secret.raw").write_bytes(np.full(64, SECRET).tobytes())
        self.reads = 0
        return self.with_shapes(path)

    def with_shapes(self, path):
        """Notes what may be changed in a file."""
        self.shapes = {}
        with h5py.File(path) as file:
            file.visititems(lambda name, item: self.shapes.update({name: getattr(item, "shape", (3, 5))}))
        return path

    def read_attributes(self, found):
        with contextlib.suppress(LandscapeError):
            check_identity(found.attributes.get("identity", {}), {"a": 1}, self.path)
        with contextlib.suppress(LandscapeError):
            continued_plan(read_file_attributes(self.path).get("measurement_plan") or {}, self.path)

    def check_facts(self, found, *texts):
        """Uses what files of any kind hold, and what is said of them."""
        for values in found.columns.values():
            assert not (np.asarray(values) == SECRET).any()
        assert repr(found)
        assert all(texts)
        self.read_attributes(found)

    def read(self):
        landscape = Landscape.load(self.path)
        for values in (*landscape.metrics.values(), landscape.x, landscape.origin.metrics["loss"]):
            assert not (np.asarray(values) == SECRET).any()
        assert repr(landscape)
        assert summary_text(landscape)
        for name in landscape.kept_samples:
            with contextlib.suppress(LandscapeDamagedError):
                assert not (landscape.samples(name).losses() == SECRET).any()
        self.read_attributes(landscape)
        assert sampling_text(landscape) != ""
        self.reads += 1
        if self.reads % 50 == 1:
            import matplotlib.pyplot as plt

            with np.errstate(all="ignore"):
                landscape.plot_profile() if landscape.y is None else landscape.plot_contour()
            plt.close("all")

    def change(self, draw):
        changed = set()
        with h5py.File(self.path, "r+") as file:
            for _ in range(draw(st.integers(1, 3))):
                if draw(st.integers(0, 2)):
                    _change_attribute(draw, file)
                else:
                    name = draw(st.sampled_from(sorted(self.shapes)))
                    if not changed & {name, name.split("/")[0]}:
                        self._change_member(draw, file, name)
                    changed.add(name)
            # As a version without digests wrote it; with one, what comes after reading would meet no damage.
            if draw(st.integers(0, 3)) and "format_version" in file.attrs:
                file.attrs["format_version"] = self.kind.oldest
                file.attrs.pop(CONTENTS, None)

    def _change_member(self, draw, file, name):
        shape = self.shapes[name]
        how = draw(st.sampled_from(("external link", "soft link", "external storage", "virtual", "chunks", "values",
                                    "huge", "empty", "loop", "delete", "text", "object", "compound")))  # fmt: skip
        del file[name]
        secret = os.path.relpath(self.secret, self.inside) if draw(st.booleans()) else str(self.secret)
        if how == "external link":
            file[name] = h5py.ExternalLink(f"{secret}/secret.h5", draw(st.sampled_from(("/loss", "/group", "/"))))
        elif how == "soft link":
            file[name] = h5py.SoftLink(draw(st.sampled_from(("/", "/loss", f"/{name}", ".", "/none"))))
        elif how == "external storage":
            count = max(1, int(np.prod(shape)))
            file.create_dataset(name, shape or (1,), "f8", external=[(f"{secret}/secret.raw", 0, 8 * count)])
        elif how == "virtual":
            layout = h5py.VirtualLayout(shape or (1,), "f8")
            layout[...] = h5py.VirtualSource(f"{secret}/secret.h5", "loss", shape or (1,))
            file.create_virtual_dataset(name, layout)
        elif how == "chunks":
            file.create_dataset(
                name, shape or (1,), "f8", chunks=True, compression=draw(st.sampled_from((None, "gzip")))
            )
        elif how == "values":
            drawn = draw(st.sampled_from((np.nan, np.inf, -1, 0, 2**40, 1e308)))
            dtype = draw(st.sampled_from(("f8", "f4", "u1", "i8", ">f8", "?", "c16")))
            with np.errstate(all="ignore"):
                file[name] = np.full(draw(st.sampled_from((shape, (), (5,), (5, 3), (0,), (1, 1, 1)))), drawn).astype(
                    dtype
                )
        elif how == "huge":
            file.create_dataset(name, draw(st.sampled_from(((16384, 16384), (2**40,), (2**20, 2**20)))), "f8")
        elif how == "empty":
            file[name] = h5py.Empty("f8")
        elif how == "loop":
            file[name] = file["/"]
        elif how == "text":
            texts = draw(st.lists(st.binary(max_size=9), min_size=1, max_size=3))
            file[name] = np.array(texts, "S9")
        elif how == "object":
            file.create_dataset(name, data=["\x1b[31m", "b"], dtype=h5py.string_dtype())
        elif how == "compound":
            file[name] = np.zeros(shape or (1,), [("a", "f8"), ("b", "i4")])


def _change_attribute(draw, file):
    name = draw(st.sampled_from(sorted(file.attrs)))
    old = file.attrs[name]
    how = draw(st.sampled_from(("inner", "inner", "json", "text", "number", "array", "deep", "delete")))
    del file.attrs[name]
    if how == "inner" and name in _JSON_ATTRIBUTES and isinstance(old, bytes):
        value = _loaded(old)
        if isinstance(value, dict) and value:
            value[draw(st.sampled_from(sorted(value)))] = draw(_JSON)
        _put_text(file, name, json.dumps(value))
    elif how in ("json", "inner"):
        _put_text(file, name, json.dumps(draw(_JSON)))
    elif how == "text":
        _put_text(file, name, draw(st.text(max_size=20) | st.just("<script>alert(1)</script>\x1b[31m")))
    elif how == "number":
        file.attrs[name] = draw(st.sampled_from((0, -1, 2**62, 1e300, np.nan, True)))
    elif how == "array":
        file.attrs[name] = np.zeros(draw(st.sampled_from(((0,), (3,), (2, 2)))))
    elif how == "deep":
        _put_text(file, name, "[" * 20_000)


def _loaded(text):
    with contextlib.suppress(ValueError, RecursionError):
        return json.loads(text)
    return None


def _put_text(file, name, text):
    encoded = text.encode("utf-8", "surrogatepass") or b" "
    file.attrs.create(name, encoded, dtype=h5py.string_dtype("utf-8", len(encoded)))


class TorchFile(Play):
    """A state dict as PyTorch saves it; its pickle and the members of its archive are changed."""

    expected = (CheckpointError,)

    def make(self):
        import torch

        path = self.inside / "net_3_step.pt"
        state = {"weight": torch.ones(7, 5), "half": torch.ones(3, dtype=torch.bfloat16), "count": torch.tensor(3)}
        torch.save({"state_dict": state, "epoch": 3, "size": torch.Size([2]), "bytes": b"ab"}, path)
        with zipfile.ZipFile(path) as file:
            self.members = {info.filename: file.read(info) for info in file.infolist()}
        return path

    def read(self):
        for array in read_checkpoint(self.path).tensors.values():
            assert array.nbytes <= len(self.path.read_bytes())

    def change(self, draw):
        members = dict(self.members)
        for _ in range(draw(st.integers(1, 3))):
            name = draw(st.sampled_from(sorted(members)) | st.just("net_3_step/data.pkl"))
            if name.endswith("data.pkl"):
                members[name] = self._changed_pickle(draw, members[name])
            elif draw(st.booleans()):
                members[name] = draw(st.sampled_from((b"", members[name][:-1], members[name] * 3, b"big")))
            else:
                others = ("net_3_step/data/../data.pkl", "net_3_step/constants.pkl", "x", f"{name}/")
                members[draw(st.sampled_from(others))] = members.pop(name)
        method = draw(st.sampled_from((zipfile.ZIP_STORED,) * 6 + (zipfile.ZIP_DEFLATED, zipfile.ZIP_LZMA)))
        with zipfile.ZipFile(self.path, "w", method) as file:
            for name, content in members.items():
                file.writestr(name, content)

    def _changed_pickle(self, draw, content):
        try:
            places = [place for _, _, place in pickletools.genops(content) if place is not None]
        except Exception:  # it was changed before
            places = list(range(len(content)))
        places = places or [0]
        at = draw(st.integers(0, len(places) - 1))
        start, stop = places[at], places[min(at + draw(st.integers(0, 2)), len(places) - 1)]
        number = draw(_INTEGERS | st.integers(0, 40))
        packed = pickle.encode_long(number)
        instructions = [_LONG + bytes([len(packed)]) + packed] * (len(packed) < 256)
        instructions += [letter.encode("latin1") for letter in "(.)0}]tReubsQaN\x81\x85\x86\x87\x88\x8f"]
        instructions += [f"c{name}\n".encode() for name in _GLOBALS]
        instructions += [letter + b"\xff\xff\xff\x7f" for letter in (b"r", b"j", b"X")]
        instructions += [b"q\x01", b"h\x01", b"h\x01" * 999]
        new = b"".join(draw(st.lists(st.sampled_from(instructions), max_size=4)))
        return content[:start] + new + content[stop:]


_LONG = b"\x8a"
_GLOBALS = (
    "__builtin__\nbytearray", "__builtin__\nset", "_codecs\nencode", "collections\nOrderedDict", "collections\nCounter",
    "torch\nFloatTensor", "torch\nFloatStorage", "torch.storage\nUntypedStorage", "torch\nSize", "torch\nfloat8_e5m2",
    "torch._utils\n_rebuild_tensor_v2", "torch._utils\n_rebuild_tensor_v3", "torch._utils\n_rebuild_parameter",
    "torch._utils\n_rebuild_qtensor", "torch._tensor\n_rebuild_from_type_v2", "os\nsystem", "builtins\neval",
)  # fmt: skip


class CurvatureFile(LandscapeFile):
    """A curvature file, changed in the same ways."""

    kind = CURVATURE

    def make(self):
        super().make().unlink()
        attributes = {
            "matrix": "hessian", "unit": "epoch", "top": 2, "bottom": 1, "weights": 1210, "tolerance": 1e-3, "seed": 0,
            "measurement_plan": MeasurementPlan(8, 2).to_json(), "notes": ["a note"], "learning_rate": [0.1, 0.1, 0.1],
            "identity": {"top": 2, "samples": {"count": 8, "sha256": "ab"}}, "versions": {"numpy": "2"},
        }  # fmt: skip
        data = CurvatureData.empty(
            {"number": (0, 5, 9), "sha256": ["ab"] * 3}, {"pair": 3, "probe": 2, "step": 4}, attributes
        )
        for values in data.columns.values():
            values[:2] = 1 if values is not data.number else values[:2]
        data.status[2] = 3
        data.errors["number/9"] = "Traceback (most recent call last):\n  File\nValueError: none"
        path = self.inside / "curvature_0-9.h5"
        path.write_bytes(record_bytes(data))
        return self.with_shapes(path)

    def read(self):
        curvature = Curvature.load(self.path)
        self.check_facts(curvature, curvature_text(curvature), json.dumps(curvature_json(curvature), allow_nan=False))
        with contextlib.suppress(ValueError), np.errstate(all="ignore"):
            curvature.density()
        with contextlib.suppress(LandscapeError, ValueError):
            curvature.vectors()


class ComparisonFile(LandscapeFile):
    """A comparison file, changed in the same ways."""

    kind = COMPARISON

    def make(self):
        super().make().unlink()
        attributes = {
            "radius": 0.5, "confidence": 0.95, "rise": 0.1, "seed": 0, "directions": 3, "normalization": "filter",
            "num_samples": 8, "recipes": ["a", "b"], "paired": ["a"], "notes": ["a note"], "versions": {"numpy": "2"},
            "measurement_plan": MeasurementPlan(8, 2).to_json(),
            "identity": {"lines": {"seed": 0}, "samples": {"count": 8, "sha256": "ab"}},
        }  # fmt: skip
        places = np.array([-0.5, 0.0, 0.5])
        data = ComparisonData.empty(
            {
                "recipe": list("aabbb"), "name": list("12123"), "sha256": [f"{row:064x}" for row in range(5)],
                "t": places, "block_size": [4.0, 4.0],
            },
            {"direction": 3},
            attributes,
        )  # fmt: skip
        data.loss[:], data.status[:], data.block_rise[:] = places**2, 1, 0.2
        data.status[4, 1] = 3
        data.errors["network/4/direction/1"] = "Traceback (most recent call last):\n  File\nValueError: none"
        path = self.inside / "compare.h5"
        path.write_bytes(record_bytes(data))
        return self.with_shapes(path)

    def read(self):
        found = Comparison.load(self.path)
        self.check_facts(found, comparison_text(found), json.dumps(comparison_json(found), allow_nan=False))
        for measure in MEASURES:
            assert found.summary(measure)


KINDS = {
    "metadata": Metadata, "checkpoint": Checkpoint, "landscape": LandscapeFile, "curvature": CurvatureFile,
    "comparison": ComparisonFile, "pytorch": TorchFile, "plane": PlaneFile, "path": PathFile, "vectors": VectorsFile,
}  # fmt: skip
