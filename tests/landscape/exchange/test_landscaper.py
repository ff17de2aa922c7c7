"""Landscaper's archive, written for Landscaper and read back by it, where it is installed."""

import json
import pickle
import subprocess
import zipfile

import numpy as np
import pytest
from little_memory import little_memory
from places import ROOT
from surfaces import landscape, loss, surface
from waiting import PATIENCE

from landscape import Landscape
from landscape.errors import LandscapeDamagedError, LandscapeFormatError
from landscape.record.checks import PointStatus

PEERS = ROOT / ".venv-peers/bin/python"
needs_landscaper = pytest.mark.skipif(
    not PEERS.exists(), reason="Landscaper 1.3.1 is not installed in .venv-peers (it needs numpy below 2)"
)


def in_landscaper(script, folder):
    result = subprocess.run(
        [str(PEERS), "-c", script], cwd=folder, capture_output=True, text=True, timeout=PATIENCE, check=False
    )
    assert result.returncode == 0, result.stderr[-2000:]
    return result.stdout


class TestExport:
    @pytest.mark.slow
    @needs_landscaper
    def test_landscaper_sees_each_value_at_its_place(self, tmp_path):
        landscape(9, 9).export(tmp_path / "a.npz", "landscaper")
        landscape(9, 9).export(tmp_path / "b.npz", "landscaper", metric="accuracy")
        script = """
import json
from landscaper import LossLandscape
read = LossLandscape.load_from_npz("a.npz")
accuracy = LossLandscape.load_from_npz("b.npz")
assert read.loss.dtype.name == "float64"
# Its own pairing of coordinates with values, which its figures and its topology use.
points = [[*map(float, point), value] for point, value in zip(read.coords, read.loss.flatten().tolist())]
print(json.dumps([points, accuracy.loss.flatten().tolist(), read.dims, read.smad()]))
"""
        points, accuracy, dimensions, _ = json.loads(in_landscaper(script, tmp_path).splitlines()[-1])
        x, y, values = np.array(points).T
        assert dimensions == 2
        np.testing.assert_allclose(values, loss(x, y), atol=1e-12)
        assert set(np.round(y, 6)) == set(np.round(np.linspace(0, 4, 9), 6))
        np.testing.assert_allclose(accuracy, np.exp(-loss(x, y)))

    def test_what_its_reader_asks_for(self, tmp_path):
        path = landscape(9, 9).export(tmp_path / "a.npz", "landscaper")[0]
        with np.load(path, allow_pickle=False) as archive:
            assert archive["loss"].shape == (9, 9)
            assert archive["coordinates"].shape == (2, 9)
            assert archive["coordinates"].dtype == archive["loss"].dtype == np.float64
            np.testing.assert_array_equal(archive["coordinates"][1], np.linspace(0, 4, 9))

    def test_nan_stays_nan(self, tmp_path):
        data = surface(5, 5)
        data.metrics["loss"][1, 2:4] = np.nan, np.inf
        with pytest.warns(UserWarning, match=r"2 of 25 points have no finite loss.*take finite numbers only"):
            path = Landscape(data).export(tmp_path / "a.npz", "landscaper")[0]
        with np.load(path) as archive:
            np.testing.assert_array_equal(archive["loss"], data.metrics["loss"])


class TestImport:
    @pytest.mark.slow
    @needs_landscaper
    def test_a_file_that_landscaper_computed(self, tmp_path):
        script = """
import torch
from landscaper import LossLandscape
network = torch.nn.Linear(2, 1, bias=False)
network.weight.data[:] = 1.0
directions = [[torch.tensor([[1.0, 0.0]])], [torch.tensor([[0.0, 1.0]])]]
first_alone = lambda network, data: float((network.weight[0, 0] - 0.25) ** 2)
LossLandscape.compute(network, torch.ones(1), directions, first_alone, steps=5, dim=2, device="cpu").save("a.npz")
"""
        in_landscaper(script, tmp_path)
        read = Landscape.import_file(tmp_path / "a.npz")
        assert read.loss.shape == (5, 5)
        # The loss depends on the first direction alone; the last column has Landscaper's noise on its largest values.
        assert np.ptp(read.loss[:, :-1], axis=0).max() == 0
        assert (np.diff(read.loss[0]) > 0).all()
        assert read.attributes["imported"] == {"format": "landscaper", "file": "a.npz", "axis_order": "xy"}
        assert "adds noise to the largest values" in read.attributes["notes"][0]

    def test_axis_orders(self, tmp_path):
        values = np.arange(9.0).reshape(3, 3)
        coordinates = np.array([[-1.0, 0, 1], [2, 3, 4]])
        np.savez(tmp_path / "a.npz", loss=values, coordinates=coordinates)
        for order, expected in ((None, values.T), ("xy", values.T), ("yx", values)):
            read = Landscape.import_file(tmp_path / "a.npz", axis_order=order)
            np.testing.assert_array_equal(read.loss, expected)
            np.testing.assert_array_equal(read.x, coordinates[0])
            np.testing.assert_array_equal(read.y, coordinates[1])
        np.savez(tmp_path / "b.npz", loss=np.zeros((3, 2)), coordinates=coordinates)
        with pytest.raises(LandscapeDamagedError, match=r"must be float64 of the shape \(3, 3\), but got .* \(2, 3\)"):
            Landscape.import_file(tmp_path / "b.npz")
        with pytest.raises(ValueError, match="axis_order must be one of 'xy', 'yx', but got 'ij'"):
            Landscape.import_file(tmp_path / "a.npz", axis_order="ij")
        with pytest.raises(ValueError, match="loss belongs to the format 'li'"):
            Landscape.import_file(tmp_path / "a.npz", loss="train_loss")

    def test_round_trip(self, tmp_path):
        original = landscape(9, 9)
        read = Landscape.import_file(original.export(tmp_path / "a.npz", "landscaper")[0])
        np.testing.assert_array_equal(read.loss, original.loss)
        np.testing.assert_array_equal(read.y, original.y)
        assert (read.status == PointStatus.MEASURED).all()
        assert read.checkpoints is None
        assert read.attributes["imported"]["axis_order"] == "yx"
        assert read.attributes["notes"] == []


class Evil:
    def __reduce__(self):
        return (print, ("executed",))


class TestHostileFiles:
    def bad(self, path, match):
        with pytest.raises(LandscapeDamagedError, match=match):
            Landscape.import_file(path)

    def archive(self, path, **members):
        with zipfile.ZipFile(path, "w") as archive:
            for name, content in members.items():
                archive.writestr(f"{name}.npy", content)
        return path

    def header(self, shape, kind="<f8"):
        text = f"{{'descr': '{kind}', 'fortran_order': False, 'shape': {shape}, }}\n"
        return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text.encode()

    def test_pickles_are_not_opened(self, tmp_path, capsys):
        content = self.header("(1,)", "|O") + pickle.dumps(np.array([Evil()], object))
        self.bad(self.archive(tmp_path / "a.npz", loss=content, coordinates=content), "'loss' has the type object")
        np.savez(tmp_path / "b.npz", loss=np.array([Evil()], object), coordinates=np.zeros((2, 1)))
        self.bad(tmp_path / "b.npz", "'loss' has the type object")
        assert capsys.readouterr().out == ""

    @pytest.mark.parametrize("shape", ["(100000, 100000)", "(3, 3)", "(-1, 3)", "(2, 3, 4)", "(99999999999999999999,)"])
    def test_sizes_that_lie(self, shape, tmp_path):
        content = self.header(shape) + bytes(40)
        self.bad(self.archive(tmp_path / "a.npz", loss=content, coordinates=content), "cannot be read as Landscaper's")

    def bomb(self, path, shape, kind, mebibytes, coordinates):
        """Writes an archive whose losses are so many times 2**20 zeros."""
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            with archive.open("loss.npy", "w", force_zip64=True) as member:
                member.write(self.header(shape, kind))
                for _ in range(mebibytes):
                    member.write(bytes(2**20))
            with archive.open("coordinates.npy", "w") as member:
                np.lib.format.write_array(member, coordinates)
        assert path.stat().st_size < 2**20
        return path

    @pytest.mark.slow
    def test_a_bomb(self, tmp_path):
        path = self.bomb(tmp_path / "a.npz", "(8192, 4100)", "<f8", 257, np.zeros((2, 1)))
        self.bad(path, "'loss' claims 269.* bytes, more than the 134217728 that are read")

    @pytest.mark.parametrize(("kind", "side"), [("|i1", 11000), ("|u1", 16380), ("<f2", 8000)])
    def test_numbers_that_grow_in_memory(self, kind, side, tmp_path):
        """float64 takes eight times the room of int8; 16,380 x 16,380 of them are 2.1 GB."""
        size, axis = side * side * np.dtype(kind).itemsize, np.arange(float(side))
        path = self.bomb(tmp_path / "a.npz", f"({side}, {side})", kind, size // 2**20 + 1, np.stack([axis, axis]))
        with little_memory(2**26):
            self.bad(path, r"'loss' (has the shape .* bytes in memory|claims .* bytes, more than)")

    def test_the_largest_grid_that_is_read_takes_what_it_must(self, tmp_path):
        axis = np.arange(1000.0)
        np.savez_compressed(tmp_path / "a.npz", loss=np.zeros((1000, 1000), np.int8), coordinates=np.stack([axis] * 2))
        with little_memory(2**26):
            assert Landscape.import_file(tmp_path / "a.npz").loss.shape == (1000, 1000)

    @pytest.mark.parametrize("method", [zipfile.ZIP_LZMA, zipfile.ZIP_BZIP2])
    def test_compressions_that_claim_memory(self, method, tmp_path):
        with zipfile.ZipFile(tmp_path / "a.npz", "w", method) as archive:
            archive.writestr("loss.npy", self.header("(3, 3)") + bytes(72))
            archive.writestr("coordinates.npy", b"")
        self.bad(tmp_path / "a.npz", "'loss' is compressed in a way that NumPy does not use")

    def test_a_long_axis_order(self, tmp_path):
        members = {"loss": np.zeros((3, 3)), "coordinates": np.zeros((2, 3)), "axis_order": np.array("y" * 10**6)}
        np.savez_compressed(tmp_path / "a.npz", **members)
        self.bad(tmp_path / "a.npz", "'axis_order' (claims|has the shape)")

    def test_truncated(self, tmp_path):
        path = landscape(9, 9).export(tmp_path / "a.npz", "landscaper")[0]
        content = path.read_bytes()
        for end in (5, len(content) // 2, len(content) - 3):
            path.write_bytes(content[:end])
            self.bad(path, "cannot be read as Landscaper's archive")

    def test_flipped_bytes_never_end_otherwise(self, tmp_path):
        path = landscape(3, 3).export(tmp_path / "a.npz", "landscaper")[0]
        content = path.read_bytes()
        random = np.random.default_rng(0)
        refused = 0
        for place in random.integers(8, len(content), 150):
            damaged = bytearray(content)
            damaged[place] ^= 1 << int(random.integers(8))
            path.write_bytes(damaged)
            try:
                Landscape.import_file(path)
            except (LandscapeDamagedError, LandscapeFormatError):
                refused += 1
        assert refused > 50

    def test_other_archives(self, tmp_path):
        np.savez(tmp_path / "a.npz", weights=np.zeros(3))
        with pytest.raises(LandscapeFormatError, match=r"must hold 'loss' and 'coordinates', but has \['weights'\]"):
            Landscape.import_file(tmp_path / "a.npz")
        np.savez(tmp_path / "b.npz", loss=np.zeros(3), coordinates=np.zeros((3, 3)))
        with pytest.raises(LandscapeFormatError, match=r"must have two dimensions .* have the shape \(3, 3\)"):
            Landscape.import_file(tmp_path / "b.npz")
