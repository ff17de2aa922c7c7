import copy
import functools
import json
import os
import re
import time
from dataclasses import replace
from pathlib import Path

import h5py
import numpy as np
import pytest
import torch
import xarray
from examples import batch_norm
from hypothesis import given, settings
from hypothesis import strategies as st
from landscape_examples import build, write_landscape
from own_processes import ended_process
from places import ROOT
from scripts import run_python
from waiting import wait_until

from collectors.errors import LandscapeError
from collectors.files.local_files import temporary_sibling
from landscape import Comparison, Curvature, Landscape, evaluate, line_between, random_plane
from landscape.errors import (
    LandscapeDamagedError,
    LandscapeFormatError,
    LandscapeIdentityError,
    LandscapeLockedError,
    LandscapeNotFoundError,
    LandscapeWriteError,
)
from landscape.grid import landscape_file
from landscape.grid.checkpoints import OriginData
from landscape.grid.data import DirectionsData, LandscapeData
from landscape.grid.landscape_file import landscape_bytes, read_landscape
from landscape.record.checks import PointStatus
from landscape.record.hdf5 import reason
from landscape.record.identity import check_identity
from landscape.record.writer import clean_temporaries, lock_landscape


def leaves(value, name=""):
    """Returns every number and text of a landscape by its place, arrays as type, shape and bytes."""
    if isinstance(value, np.ndarray):
        return {name: (value.dtype.str, value.shape, value.tobytes())}
    if isinstance(value, dict):
        items = value
    elif hasattr(value, "__dataclass_fields__"):
        items = {item: values for item, values in vars(value).items() if item != "path"}
    elif isinstance(value, float):
        return {name: np.float64(value).tobytes()}
    else:
        return {name: value}
    return {key: leaf for item in items for key, leaf in leaves(items[item], f"{name}.{item}").items()}


@pytest.mark.slow
def test_the_page_of_file_formats_names_everything_that_a_survey_writes(tmp_path):
    network, path = batch_norm()[1], tmp_path / "a.h5"
    other = copy.deepcopy(network)
    with torch.no_grad():
        next(other.parameters()).add_(0.1)
    page = (ROOT / "docs/formats.md").read_text()
    named = {*re.findall(r"`/?(\w+)/?`", page), "accuracy"}
    named |= {f"projected_{name}" for name in named} | {f"{name}_with_plane_buffers" for name in named}
    for plane in (random_plane(network, seed=1), line_between(network, other)):
        evaluate(plane, batch_norm, size=3, output=path, overwrite=True, device_ids=[0], progress=False)
        with h5py.File(path) as file:
            members = []
            file.visit(members.append)
            written = {*file.attrs, *json.loads(file.attrs["measurement_plan"]), *json.loads(file.attrs["sampling"])}
        assert written | {part for member in members for part in member.split("/")} <= named


python = functools.partial(run_python, "-W", "error", "-c", cwd=ROOT)


def rewrite(path, change):
    with h5py.File(path, "r+") as file:
        change(file)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "landscape_1-9_pca.h5"


def written_and_read(path, data):
    write_landscape(path, data)
    return read_landscape(path)


class TestRoundTrip:
    @pytest.mark.parametrize("rows", [None, 1, 3, 7])
    @pytest.mark.parametrize("buffers", [True, False])
    def test_everything_comes_back_bit_for_bit(self, path, rows, buffers):
        data = build(rows, 4, buffers=buffers)
        write_landscape(path, data)
        data.errors["grid/1,2"] = "Traceback\n  é \\ud800 \\x00"
        read = read_landscape(path)
        assert read.path == path
        assert leaves(read) == leaves(data)

    def test_without_trajectory_errors_or_attributes(self, path):
        data = build(trajectory=False)
        data.errors, data.attributes = {}, {}
        assert leaves(written_and_read(path, data)) == leaves(data)

    def test_the_file_says_what_it_is(self, path):
        write_landscape(path, build())
        with h5py.File(path) as file:
            assert file.attrs["format"] == b"summary-landscape"
            assert file.attrs["format_version"] == 3
            assert file.attrs["complete"] is np.False_
            assert file.attrs["decomposition"] == b"pca"
            assert set(file) == {
                "x", "y", "loss", "loss_stderr", "accuracy", "aa", "status",
                "errors", "checkpoints", "origin", "directions",
            }  # fmt: skip
            assert set(file["checkpoints"]) == {
                "number", "x", "y", "residual", "norm", "status", "projected_status", "with_plane_buffers_status",
                "loss", "accuracy", "projected_loss", "projected_accuracy", "loss_with_plane_buffers",
                "accuracy_with_plane_buffers", "run", "final", "name", "run_name", "sha256",
            }  # fmt: skip
            assert file["checkpoints/name"].asstr()[()].tolist() == ["", "", "", "average of both ☕"]
            assert file["origin/role"].asstr()[()] == "final weights"
            assert file["origin/x"][()] == 0

    def test_complete_means_that_nothing_is_pending(self, path):
        data = build()
        data.status[:] = PointStatus.MEASURED
        for place in (data.checkpoints.status, data.checkpoints.projected_status):
            place[:] = PointStatus.FAILED
        assert not data.complete
        data.checkpoints.with_plane_buffers_status[:] = PointStatus.MEASURED
        assert data.complete
        for change in (
            replace(data, origin=OriginData()),
            replace(data, status=np.zeros((3, 5), np.uint8)),
            replace(data, checkpoints=replace(data.checkpoints, status=np.zeros(4, np.uint8))),
        ):
            assert not change.complete
        write_landscape(path, data)
        with h5py.File(path) as file:
            assert file.attrs["complete"] is np.True_

    @pytest.mark.slow
    @settings(max_examples=20)
    @given(
        attribute=st.recursive(
            st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
            lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
            max_leaves=8,
        ),
        name=st.sampled_from(["seed", "network", "identity", "ключ"]),
        errors=st.dictionaries(
            st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"])),
            st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"])),
            max_size=4,
        ),
    )
    def test_any_json_attribute_and_any_text(self, tmp_path_factory, attribute, name, errors):
        data = build(trajectory=False)
        data.attributes, data.errors = {name: attribute}, errors
        back = written_and_read(tmp_path_factory.mktemp("any") / "a.h5", data)
        assert back.attributes == {name: attribute}
        assert type(back.attributes[name]) is type(attribute)
        assert back.errors == errors

    def test_a_large_attribute_and_many_failures(self, path):
        data = build()
        data.attributes["identity"] = {"checkpoints": ["a" * 64] * 5000}
        data.errors = {f"grid/{row},{column}": f"Traceback {column}" for row in range(300) for column in range(5)}
        back = written_and_read(path, data)
        assert back.attributes["identity"] == data.attributes["identity"]
        assert back.errors == data.errors

    def test_an_endless_traceback_keeps_its_ends(self, path):
        data = build()
        data.errors = {"grid/0,0": "first" + "é" * 10**6 + "last"}
        text = written_and_read(path, data).errors["grid/0,0"]
        assert text.startswith("firsté")
        assert text.endswith("élast")
        assert "\n[...]\n" in text
        assert path.stat().st_size < 200_000

    def test_an_attribute_that_is_no_json_value_is_refused(self, path):
        data = build()
        data.attributes["identity"] = {"a": object()}
        with pytest.raises(TypeError, match="attribute 'identity' must be a JSON value, but has object"):
            write_landscape(path, data)
        assert not path.exists()


class TestSameBytes:
    def test_writing_twice_gives_the_same_bytes(self):
        def second():
            return int(time.time())  # time: HDF5 asks the system's clock, and keeps whole seconds if it keeps any

        first, written = landscape_bytes(build()), second()
        wait_until(lambda: second() > written, what="the next second")
        assert landscape_bytes(build()) == first

    def test_the_order_of_dictionaries_does_not_matter(self):
        data, other = build(), build()
        for mappings in (other.metrics, other.errors, other.attributes, other.checkpoints.metrics):
            items = list(mappings.items())
            mappings.clear()
            mappings.update(reversed(items))
        assert landscape_bytes(other) == landscape_bytes(data)

    def test_this_process_and_another_one_write_what_they_read_with_the_same_bytes(self, path):
        copy = path.with_name("copy.h5")
        write_landscape(copy, written_and_read(path, build(7, 4)))
        assert copy.read_bytes() == path.read_bytes()
        copy.unlink()
        python(
            "from landscape.grid.landscape_file import landscape_bytes, read_landscape;"
            "from landscape.record.whole_file import write_image;"
            f"write_image({str(copy)!r}, landscape_bytes(read_landscape({str(path)!r})))"
        )
        assert copy.read_bytes() == path.read_bytes()


class TestXarray:
    @pytest.mark.parametrize(("rows", "dims"), [(3, ("y", "x")), (None, ("x",))])
    def test_opens_the_file_as_it_is(self, path, rows, dims):
        data = build(rows)
        write_landscape(path, data)
        with xarray.open_dataset(path, engine="h5netcdf") as dataset:
            assert dataset["loss"].dims == dims
            for name in (*data.metrics, *dims):
                np.testing.assert_array_equal(dataset[name], getattr(data, name, data.metrics.get(name)))
            assert rows is None or dataset["accuracy"].sel(x=2.0, y=25.0) == data.metrics["accuracy"][1, 4]
            assert dataset.attrs["network"] == "Nett$_é"
        with xarray.open_dataset(path, engine="h5netcdf", group="checkpoints") as dataset:
            assert dataset["projected_loss"].dims == ("number",)
            assert dataset["number"].values.tolist() == [3, 5, 8, 9]


class TestAbsentAndForeign:
    @pytest.mark.parametrize("reader", [Landscape, Curvature, Comparison])
    def test_no_path(self, reader):
        with pytest.raises(TypeError, match=r"path must be a path \(str or os\.PathLike\), but got NoneType: None"):
            reader.load(None)

    def test_absent(self, tmp_path):
        (tmp_path / "file").touch()
        for folder in (tmp_path, tmp_path / "file"):
            with pytest.raises(LandscapeNotFoundError, match=r"there is no landscape file .*none\.h5") as caught:
                read_landscape(folder / "none.h5")
            assert isinstance(caught.value, FileNotFoundError)

    @pytest.mark.parametrize(
        ("make", "match"),
        [
            (Path.mkdir, "is a directory"),
            (os.mkfifo, "no regular file"),
            (lambda path: h5py.File(path, "w").close(), "HDF5 file of another program"),
        ],
    )
    def test_what_is_no_landscape_file(self, path, make, match):
        make(path)
        with pytest.raises(LandscapeFormatError, match=match):
            read_landscape(path)

    @pytest.mark.parametrize(
        ("name", "value", "match"),
        [
            # Text of variable length.
            ("format", "summary-landscape", "another program"),
            ("format", "other", "another program"),
            ("format_version", 4, "format_version 4, this program reads 2 and 3.*Install a newer"),
            (
                "format_version",
                1,
                r"format_version 1, this program reads 2 and 3.*Measure it again.*or read it with the version that",
            ),
        ],
    )
    def test_another_format_or_version(self, path, name, value, match):
        write_landscape(path, build())
        rewrite(path, lambda file: file.attrs.__setitem__(name, value))
        with pytest.raises(LandscapeFormatError, match=match):
            read_landscape(path)

    def test_attributes_of_other_programs_are_left_alone(self, path):
        data = build()
        write_landscape(path, data)
        rewrite(path, lambda file: file.attrs.update({"note": np.arange(3), "who": "me", "temperature": 21.5}))
        assert read_landscape(path).attributes == {**data.attributes, "temperature": 21.5}


CHUNKED = "in chunks, by reference or in another file"
CLAIMS = "claims .*(more than are there|than the file has)"


def accuracy_again():
    layout = h5py.VirtualLayout((3, 5), "f8")
    layout[:] = h5py.VirtualSource(".", "accuracy", (3, 5))
    return layout


def repeated(file):
    file["big"] = np.zeros(20_000)
    for index in range(100):
        file[f"same_{index}"] = file["big"]


def without(name, store=lambda file: None):
    """Returns a change of a file that removes an item, and maybe stores something in its place."""
    return lambda file: (file.__delitem__(name), store(file))


def instead(name, values):
    return without(name, lambda file: file.__setitem__(name, values))


class TestDamaged:
    @pytest.mark.parametrize("content", [b"\x89", b"\x89HDF", b"\x89HDF\r\n\x1a\n" + bytes(2000)])
    def test_no_hdf5(self, path, content):
        path.write_bytes(content)
        with pytest.raises(LandscapeDamagedError, match=r"is damaged .* overwrite=True"):
            read_landscape(path)
        assert path.read_bytes() == content

    def test_nobody_is_told_to_replace_what_may_be_anything(self, path):
        path.write_bytes(b"not HDF5 at all\0" * 100)
        with pytest.raises(LandscapeDamagedError, match="is damaged, or none at all") as caught:
            read_landscape(path)
        assert "overwrite" not in str(caught.value)

    def test_truncated_anywhere(self, path):
        write_landscape(path, build())
        whole = path.read_bytes()
        for length in np.linspace(1, len(whole) - 1, 60).astype(int):
            path.write_bytes(whole[:length])
            with pytest.raises(LandscapeDamagedError, match="is damaged"):
                read_landscape(path)
            assert path.stat().st_size == length

    @pytest.mark.parametrize(
        ("change", "why"),
        [
            *((without(name), "") for name in (
                "x", "y", "loss", "status", "origin", "origin/x", "origin/loss", "origin/status", "origin/role",
                "origin/name", "origin/run", "checkpoints/run", "checkpoints/name", "checkpoints/run_name",
                "directions", "checkpoints/final", "directions/norms", "errors", "errors/place", "checkpoints/x",
                "checkpoints/number", "checkpoints/loss", "checkpoints/projected_loss",
                "checkpoints/with_plane_buffers_status",
            )),
            *((instead(name, values), f"({why}|Type-check error)") for name, values, why in (
            ("loss", np.zeros((5, 3)), r"'loss'.* shape \(3, 5\), but got .* shape \(5, 3\)"),
            ("loss", np.zeros((3, 5), np.float32), "must be float64.* but got float32"),
            ("loss", np.zeros((3, 5), ">f8"), "must be float64.* but got >f8"),
            ("accuracy", np.zeros(15), r"shape \(15,\)"),
            ("accuracy", np.zeros((3, 5, 1)), r"has the shape \(3, 5, 1\)"),
            ("status", np.full((3, 5), 4, np.uint8), "numbers 0 to 3, but got 4"),
            ("status", np.zeros((3, 5), np.int8), "must be uint8"),
            ("x", np.array([0, 1, np.nan, 2, 3]), "finite and increasing"),
            ("x", np.array([0.0, 1, 1, 2, 3]), "finite and increasing"),
            ("y", np.zeros(0), "1 to 16384"),
            ("x", np.float64(1), "x must be an array"),
            ("checkpoints/x", np.zeros(3), r"checkpoints\.x"),
            ("checkpoints/number", np.zeros(4), r"checkpoints\.number"),
            ("origin/status", np.uint8(9), "9 is not a valid PointStatus"),
            ("directions/norms", np.zeros(3), r"directions\.norms"),
            ("errors/traceback_index", np.array([0, 1, 99]), "index out of range"),
            ("errors/traceback_index", np.array([0, 1, -1]), "indices"),
            ("origin/x", np.zeros(3), "TypeError"),
            ("checkpoints/final", np.array([0, 7, 0, 0], np.uint8), "'final' must hold 0 or 1"),
            ("checkpoints/run", np.array([5, 5, 5, 5]), r"checkpoints\.run must hold"),
            ("checkpoints/name", np.zeros(4), "'name' has the type float64"),
            ("origin/role", np.bytes_(b"nobody"), r"origin\.role must be one of"),
            )),
            (instead("loss", h5py.ExternalLink("secret.h5", "/loss")), "is a link to another"),
            (instead("loss", h5py.SoftLink("/accuracy")), "'loss' is a link to another place"),
            *((without("loss", store), CHUNKED) for store in (
                lambda file: file.create_dataset("loss", (3, 5), "f8", external=[(f"{file.filename}_", 0, 120)]),
                lambda file: file.create_virtual_dataset("loss", accuracy_again()),
                lambda file: file.create_dataset("loss", (3, 5), "f8", compression="gzip"),
            )),
            (lambda file: file.create_dataset("huge", (16384, 16384), "f8"), CLAIMS),
            (repeated, CLAIMS),
        ],
    )  # fmt: skip
    def test_contents_that_are_missing_wrong_elsewhere_or_claim_much_memory(self, path, change, why):
        with h5py.File(path.with_name("secret.h5"), "w") as file:
            file["loss"] = np.zeros((3, 5))
        path.with_name(f"{path.name}_").write_bytes(bytes(120))
        write_landscape(path, build())
        rewrite(path, change)
        with pytest.raises(LandscapeDamagedError, match=f"is damaged .*{why}"):
            read_landscape(path)

    @pytest.mark.parametrize(
        ("name", "value", "why"),
        [
            ("sampling", "full", "sampling must be a dict, but got str"),
            ("sampling", {"finished": "yes"}, r"sampling\['finished'\] must be a bool"),
            ("sampling", {"interpolated": 3}, "a report with .*'tolerance'.*because points are interpolated"),
            ("sampling", {"interpolated": -1}, r"sampling\['interpolated'\] must be .*, but got -1"),
            ("sampling", {"estimated_error": "1 %"}, r"sampling\['estimated_error'\] must be a"),
            ("measurement_plan", [], "measurement_plan must be a dict, but got list"),
            ("measurement_plan", {"batch_size": 0}, r"measurement_plan\['batch_size'\] must be"),
            ("measurement_plan", {"threads": 10**6}, r"measurement_plan\['threads'\] must be .* 4096, but got 1000000"),
            ("measurement_plan", {"reason": 3}, r"measurement_plan\['reason'\] must be a str"),
            ("notes", "a note", "notes must be a list, but got str"),
            ("notes", [1], r"notes\[0\] must be a str"),
            ("intervals", [3], r"intervals\[0\] must be a list"),
            ("intervals", [[]], r"intervals\[0\] must be a list of numbers that is not empty"),
            ("intervals", [["1"]], r"a number of intervals\[0\] must be an int"),
        ],
    )
    def test_attributes_from_which_the_program_goes_on(self, path, monkeypatch, name, value, why):
        data = build()
        data.attributes[name] = value
        with pytest.raises((TypeError, ValueError), match=why):
            write_landscape(path, data)
        with monkeypatch.context() as patch:
            patch.setattr(landscape_file, "check_attributes", lambda attributes: None)
            patch.setattr(LandscapeData, "complete", False)
            write_landscape(path, data)
        with pytest.raises(LandscapeDamagedError, match=f"is damaged .*{why}"):
            read_landscape(path)

    def test_of_a_failure_of_the_disk_only_what_the_system_reports(self, path):
        """In another process: HDF5 may crash when it closes a file that it could not write."""
        text = python(f"""
import os, resource
import h5py, numpy as np
resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))
file = h5py.File({str(path)!r}, "w")
try:
    file["x"] = np.zeros(100_000)
    file.flush()
except Exception as error:
    print(error, flush=True)
os._exit(0)
""")
        assert "buf = 0x" in text, "HDF5 does not say where its buffer is any more"
        assert reason(OSError(text)) == "File too large"
        assert [reason(ValueError("one\ntwo")), reason(ValueError())] == ["one", "ValueError"]

    def test_a_permission_is_not_called_damage(self, path):
        write_landscape(path, build())
        loop = path.with_name("loop.h5")
        loop.symlink_to(loop)
        with pytest.raises(LandscapeError, match="cannot be opened"):
            read_landscape(loop)


class TestIdentity:
    def test_equal_identities_pass(self):
        check_identity({"a": {"b": [1, 2]}, "c": None}, {"c": None, "a": {"b": (1, 2)}}, "f.h5")

    @pytest.mark.parametrize(
        ("stored", "wanted", "said"),
        [
            ({"grid": {"x": [-1.0, 1.0], "size": 5}, "seed": 3}, {"grid": {"x": [-1.0, 1.0], "size": 7}, "seed": 3},
             ["  grid.size: the file has 5, this run 7"]),
            ({"gone": 1}, {"new": None},
             ["  gone: the file has 1, this run nothing", "  new: the file has nothing, this run null"]),
            ({"a": {}}, {}, ["  a: the file has {}, this run nothing"]),
        ],
    )  # fmt: skip
    def test_lists_what_differs_and_nothing_else(self, stored, wanted, said):
        with pytest.raises(LandscapeIdentityError, match=r"overwrite=True .* output=") as caught:
            check_identity(stored, wanted, "f.h5")
        assert str(caught.value).splitlines()[1:-1] == said

    def test_many_are_counted_and_long_ones_are_shortened(self):
        stored, wanted = ({f"{index:02}": letter * 64 for index in range(100)} for letter in "ab")
        with pytest.raises(LandscapeIdentityError, match="and 92 more: ") as caught:
            check_identity(stored, wanted, "f.h5")
        assert all(len(line) < 170 for line in str(caught.value).splitlines())


class TestWriting:
    def test_a_place_that_cannot_be_written(self, tmp_path):
        (tmp_path / "file").touch()
        for place in (tmp_path / "file" / "a.h5", Path("/proc/a.h5"), tmp_path / ("n" * 250)):
            with pytest.raises(LandscapeWriteError, match=r"cannot be written: .* No file was there, and none is now"):
                write_landscape(place, build())
            with pytest.raises(LandscapeWriteError, match="cannot be locked"), lock_landscape(place):
                pass
        assert [item.name for item in tmp_path.iterdir()] == ["file"]

    def test_data_that_do_not_fit_are_refused(self, path):
        write_landscape(path, build())
        before = path.read_bytes()
        data = build()
        data.metrics["loss"] = np.zeros((5, 3))
        with pytest.raises(ValueError, match=r"metrics\['loss'\] must be float64 of the shape \(3, 5\)"):
            write_landscape(path, data)
        assert path.read_bytes() == before

    @pytest.mark.parametrize(
        ("names", "match"),
        [
            (("accuracy",), "metrics must have 'loss'"),
            *((("loss", name), r"the name of a metric must .* Rename the metric") for name in (
                "x", "status", "checkpoints", "run_name", "norm", "projected_loss", "loss_with_plane_buffers", "top/5",
                "", ".", "a\0", "a\n",
            )),
        ],
    )  # fmt: skip
    def test_names_of_metrics_that_the_file_cannot_hold(self, names, match):
        with pytest.raises(ValueError, match=match):
            LandscapeData.empty(np.zeros(1), None, DirectionsData(np.ones(1)), names)

    def test_a_link_stays_a_link(self, path):
        link = path.with_name("link.h5")
        link.symlink_to(path)
        write_landscape(link, build())
        assert link.is_symlink()
        assert leaves(read_landscape(path)) == leaves(read_landscape(link))


class TestLocks:
    def test_a_second_writer_in_this_process(self, path):
        with lock_landscape(path):
            message = rf"{path.name} is being written by process {os.getpid()}\. .* another place"
            with pytest.raises(LandscapeLockedError, match=message), lock_landscape(path):
                pass
            # It is freed by an exception too.
            with pytest.raises(ZeroDivisionError), lock_landscape(path.with_name("other.h5")):
                1 / 0
        for place in (path, path.with_name("other.h5")):
            with lock_landscape(place):
                pass
        assert list(path.parent.iterdir()) == []


class TestTemporaries:
    def test_only_those_of_dead_processes_go(self, path):
        write_landscape(path, build())
        dead = ended_process()
        live, other = temporary_sibling(path), temporary_sibling(path.with_name("b.h5"))
        gone = path.with_name(f".{path.name}.{dead}.0123abcd.tmp")
        foreign = [path.with_name(f"{path.name}.{dead}.0123abcd.tmp"), path.with_name(f".{path.name}.{dead}.tmp")]
        for item in (live, other, gone, *foreign):
            item.touch()
        assert clean_temporaries(path) == [gone]
        assert set(path.parent.iterdir()) == {path, live, other, *foreign}
        assert clean_temporaries(path.parent / "none" / "a.h5") == []


def test_importing_is_light():
    loaded = python(
        "import sys, landscape.grid.landscape_file, landscape.landscape, landscape.figures;"
        "print([name for name in ('h5py', 'matplotlib', 'torch', 'ray', 'scipy', 'sklearn', 'xarray', 'jaxtyping')"
        " if name in sys.modules])"
    )
    assert loaded.strip() == "[]"
