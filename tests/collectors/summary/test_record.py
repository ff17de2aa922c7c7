"""SummaryRecord: arguments, values, and what comes out of the files."""

import copy
import io
import pickle
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
import torch
from event_reading import accumulated, event_files, events, scalars, tensors
from PIL import Image
from places import ROOT
from torch import nn

from collectors.files import system
from collectors.summary.record import SummaryRecord
from collectors.summary.values import check_value


@pytest.fixture
def record(tmp_path):
    with SummaryRecord(tmp_path, raise_exception=True) as opened:
        yield opened


def write(record, *values, step=1):
    """Adds values, each as plugin, name and value, and records them."""
    for plugin, name, value in values:
        record.add_value(plugin, name, value)
    return record.record(step)


def written(directory, *values, **options):
    with SummaryRecord(directory, raise_exception=True, **options) as record:
        assert write(record, *values) is True


def decoded(accumulator, tag):
    return np.asarray(Image.open(io.BytesIO(accumulator.Images(tag)[0].encoded_image_string)))


def stderr_of(script):
    """Returns what a script says of its errors and warnings in a process of its own."""
    command = [sys.executable, "-W", "error", "-c", f"import sys\nsys.path.insert(0, {str(ROOT)!r})\n{script}"]
    return subprocess.run(command, capture_output=True, text=True, check=False).stderr


class Drawn:
    def __init__(self, parts):
        self.parts = parts

    def summary_values(self):
        return self.parts


@pytest.mark.parametrize(
    ("arguments", "error", "match"),
    [
        ({"log_dir": 3}, TypeError, "log_dir must be a path"),
        ({"file_prefix": 1}, TypeError, "file_prefix must be a str"),
        ({"file_prefix": "a-b"}, ValueError, "file_prefix must be ASCII letters"),
        ({"file_prefix": ".a"}, ValueError, "file_prefix must be ASCII letters"),
        ({"file_prefix": "a\n"}, ValueError, "file_prefix must be ASCII letters"),
        ({"file_prefix": "a" * 240}, ValueError, "file_prefix and file_suffix must be short enough"),
        ({"file_suffix": ""}, ValueError, "file_suffix must be ASCII letters"),
        ({"network": "net"}, TypeError, r"network must be a torch\.nn\.Module or None"),
        ({"max_file_size": 0}, ValueError, "max_file_size must be a positive number of bytes, or None"),
        ({"raise_exception": 1}, TypeError, "raise_exception must be a bool"),
        ({"export_options": {"format": "npy"}}, ValueError, r"export_options has unknown keys \['format'\]"),
        ({"export_options": {"tensor_format": "npz"}}, ValueError, "must be one of 'npy', but got 'npz'"),
        ({"num_process": 0}, ValueError, "num_process must be an int of at least 1"),
    ],
)
def test_refuses_wrong_arguments_at_construction(tmp_path, arguments, error, match):
    with pytest.raises(error, match=match):
        SummaryRecord(**{"log_dir": tmp_path, **arguments})


@pytest.mark.parametrize(
    "arguments",
    [
        {"file_prefix": "_a.B9", "max_file_size": 1, "export_options": {}},
        {"file_suffix": "x.y_", "num_process": 1, "export_options": {"tensor_format": None}},
    ],
)
def test_takes_right_arguments(tmp_path, arguments):
    written(tmp_path, ("scalar", "loss", 1.0), **arguments)
    assert scalars(tmp_path, "loss") == [(1, 1.0)]


def test_arguments_have_the_documents_order(tmp_path):
    network = nn.Linear(1, 1)
    with SummaryRecord(tmp_path, "prefix", "suffix", network, 1000, True, {"tensor_format": "npy"}) as record:
        write(record, ("tensor", "t", np.ones(2)))
    assert all(re.fullmatch(r"prefix\.out\..*suffix", path.name) for path in event_files(tmp_path))
    assert accumulated(tmp_path).Graph().node
    assert len(list(tmp_path.glob("export_*/tensor/t_1.npy"))) == 1


def test_negative_max_file_size_means_no_limit_and_warns(tmp_path):
    with pytest.warns(UserWarning, match="max_file_size is -1, which sets no limit"):
        record = SummaryRecord(tmp_path, max_file_size=-1)
    with record:
        for step in (1, 2):
            write(record, ("tensor", "t", np.zeros(10_000)), step=step)
    assert len(event_files(tmp_path)) == 1


def test_log_dir_that_is_a_file(tmp_path):
    (tmp_path / "file").write_text("")
    for place in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(NotADirectoryError, match=r"log_dir must be a directory, but .*file is a file"):
            SummaryRecord(place)


def test_creates_private_directories_and_files(tmp_path):
    (tmp_path / "link").symlink_to(tmp_path)
    record = SummaryRecord(str(tmp_path / "link" / "a" / "b"))
    directory = tmp_path / "a" / "b"
    assert directory.stat().st_mode & 0o777 == 0o700
    assert Path(record.log_dir).parent == directory
    assert list(directory.iterdir()) == []
    write(record, ("scalar", "loss", 1.0), ("custom_lineage_data", "mine", {"a": 1}))
    record.flush()
    assert Path(record.log_dir).stat().st_mode & 0o777 == 0o600
    record.close()
    assert [path.stat().st_mode & 0o777 for path in event_files(directory)] == [0o400, 0o400]


@pytest.mark.parametrize(("mode", "below"), [(0o555, ""), (0o555, "new"), (0o000, "new")])
def test_directory_without_permission(mode, below):
    # Not in tmp_path, whose parents another user may not enter.
    with tempfile.TemporaryDirectory() as outer:
        closed = Path(outer) / "closed"
        Path(outer).chmod(0o755)
        closed.mkdir()
        closed.chmod(mode)
        said = stderr_of(f"""
import os
from collectors.summary.writer import prepare_directory
from pathlib import Path
if os.getuid() == 0:
    os.setuid(65534)
prepare_directory(Path({str(closed / below)!r}))
""")
    expected = "PermissionError: log_dir must be writable, but .*closed is not; choose another path or change its perm"
    assert re.search(expected, said)


def test_missing_tensorboard_names_the_extra(tmp_path):
    said = stderr_of(f"""
sys.modules["tensorboard"] = None
from collectors.summary.record import SummaryRecord
SummaryRecord({str(tmp_path / "new")!r})
""")
    assert "ImportError: SummaryRecord needs TensorBoard" in said
    assert "pip install 'summary-landscape[tensorboard]'" in said
    assert not (tmp_path / "new").exists()


def test_records_numbers_and_arrays_without_torch(tmp_path):
    said = stderr_of(f"""
from collectors.summary.record import SummaryRecord
import numpy as np
with SummaryRecord({str(tmp_path)!r}, raise_exception=True) as record:
    record.add_value("scalar", "loss", 0.5)
    record.add_value("histogram", "h", np.arange(9))
    record.record(3)
heavy = {{"torch", "ray", "matplotlib", "sklearn", "scipy", "h5py", "tensorflow"}} & set(sys.modules)
assert not heavy, heavy
""")
    assert said == ""
    assert scalars(tmp_path, "loss") == [(3, 0.5)]


@pytest.mark.parametrize(
    ("plugin", "value", "error", "match"),
    [
        (1, 1.0, TypeError, "plugin must be a str"),
        ("explainer", 1.0, ValueError, "plugin must be one of 'scalar', .*'landscape', but got 'explainer'"),
        ("SCALAR", 1.0, ValueError, "plugin must be one of"),
        ("scalar", "1", TypeError, "the scalar 'x' must be a number, a NumPy array or a tensor, but got str"),
        ("scalar", True, TypeError, "the scalar 'x' must be a real number, but got bool"),
        ("scalar", np.zeros(2), ValueError, r"the scalar 'x' must be exactly one number, .*\(2,\)"),
        ("image", np.zeros((3, 8, 8)), ValueError, r"must be an image batch .*\(3, 8, 8\)"),
        ("image", np.zeros((1, 2, 8, 8)), ValueError, "with 1, 3 or 4 channels"),
        ("image", np.zeros((0, 3, 8, 8)), ValueError, "no empty axis"),
        ("image", np.zeros((1, 3, 8, 8), complex), TypeError, "record its absolute value"),
        ("tensor", 1.0, ValueError, "must be an array with at least one axis"),
        ("tensor", np.array(["a"]), TypeError, "but its elements are <U1"),
        ("tensor", np.array([None]), TypeError, "but its elements are object"),
        ("tensor", np.zeros(2, "datetime64[s]"), TypeError, "but its elements are datetime64"),
        ("tensor", np.ma.array([1.0], mask=[True]), TypeError, "without a mask"),
        ("tensor", torch.zeros(2, device="meta"), TypeError, "a dense tensor with values"),
        ("tensor", torch.zeros(2).to_sparse(), TypeError, "a dense tensor with values"),
        ("histogram", np.zeros(2, complex), TypeError, "record its real and imaginary parts"),
        ("graph", "text", TypeError, "the graph 'x' must be a torch.nn.Module, a GraphDef or"),
        ("graph", b"\xff\xff", ValueError, "cannot be parsed"),
        ("graph", b"", ValueError, "at least one node"),
        ("train_lineage", 3, TypeError, "must be a TrainLineage or a dict"),
        ("eval_lineage", "x", TypeError, "must be a EvalLineage or a dict"),
        ("dataset_graph", [1], TypeError, "must be a dict that describes"),
        ("custom_lineage_data", None, TypeError, "must be a dict from str"),
        ("landscape", np.zeros(3), TypeError, r"must be an object with a method summary_values\(\)"),
        ("landscape", Drawn({"contour": np.zeros(3)}), ValueError, r"a key of summary_values\(\) .* must be one of"),
        ("landscape", Drawn({"image": np.zeros(3)}), ValueError, r"image of summary_values\(\) .* be an image batch"),
        ("landscape", Drawn([1]), TypeError, "must be a dict from plugin to array"),
    ],
)
def test_refuses_wrong_values_where_they_are_added(record, plugin, value, error, match):
    with pytest.raises(error, match=match):
        record.add_value(plugin, "x", value)
    assert record.record(1)
    assert not Path(record.log_dir).exists()


@pytest.mark.parametrize(("name", "error"), [(None, TypeError), (3, TypeError), ("", ValueError), (" ", ValueError)])
def test_refuses_wrong_names(record, name, error):
    with pytest.raises(error, match="name must be a"):
        record.add_value("scalar", name, 1.0)


def test_scalars_of_all_kinds(tmp_path, record):
    ones = [1, 1.0, np.float32(1), np.int8(1), np.ones((1, 1)), torch.ones(1, 1), torch.tensor(1)]
    others = [np.nan, np.inf, -np.inf, 1e300, 2**80, torch.ones(1, requires_grad=True) * 2]
    for step, value in enumerate([*ones, *others]):
        write(record, ("scalar", "loss", value), step=step)
    record.flush()
    expected = [*[1.0] * 7, np.nan, np.inf, -np.inf, np.inf, float(2**80), 2.0]
    np.testing.assert_array_equal(scalars(tmp_path, "loss"), list(enumerate(expected)))


@pytest.mark.parametrize("dtype", "?bBhHiIlLqQefdFD")
@pytest.mark.parametrize("shape", [(2, 3), (3,), (1,), (1, 1), (0, 2)])
def test_tensors_keep_type_shape_and_values(tmp_path, dtype, shape):
    array = np.arange(np.prod(shape)).reshape(shape).astype(dtype)
    written(tmp_path, ("tensor", "t", array))
    (found,) = tensors(tmp_path, "t")
    np.testing.assert_array_equal(found, array)
    assert found.shape == shape
    assert found.dtype == (array.dtype if array.size else np.float32 if dtype == "e" else found.dtype)
    assert str(shape) in tensors(tmp_path, "t/text")[0].item().decode()
    # What TensorBoard does with this form of half precision, setting the type of an array, is deprecated in NumPy 2.5.
    assert not any(value.tensor.half_val for event in events(tmp_path) for value in event.summary.value)


@pytest.mark.parametrize(
    "value",
    [
        torch.tensor([0.5, -2.0], dtype=torch.bfloat16),
        torch.tensor([0.5, -2.0], dtype=torch.float8_e4m3fn),
        np.array([0.5, -2.0], ml_dtypes.bfloat16),
        np.array([0.5, -2.0], ml_dtypes.float8_e5m2),
        torch.tensor([0.5, -2.0], requires_grad=True),
        np.array([0.5, -2.0], ">f4"),
        np.array([0.5, 9.0, -2.0], np.float32)[::2],
    ],
)
def test_other_element_types_become_float32(value):
    found, longer = (check_value("tensor", "x", item)[0].content for item in (value, np.array([1.5], np.longdouble)))
    assert found.dtype == np.dtype("=f4")
    np.testing.assert_array_equal(found, np.array([0.5, -2.0], np.float32))
    assert longer.dtype == np.float64


def test_values_are_copied_when_they_are_added(tmp_path, record):
    array, tensor, facts = np.zeros(2), torch.zeros(2), {"a": 1}
    record.add_value("tensor", "array", array)
    record.add_value("tensor", "tensor", tensor)
    record.add_value("custom_lineage_data", "facts", facts)
    array += 1
    tensor += 1
    facts["a"] = 2
    record.record(1)
    record.flush()
    assert tensors(tmp_path, "array")[0].tolist() == [0.0, 0.0]
    assert tensors(tmp_path, "tensor")[0].tolist() == [0.0, 0.0]
    assert '"a": 1' in tensors(tmp_path, "facts")[0].item().decode()


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
@pytest.mark.parametrize("channels", [1, 3, 4])
def test_uint8_images_keep_their_values(tmp_path, layout, channels):
    images = np.random.default_rng(0).integers(0, 256, (11, 5, 7, channels), np.uint8)
    images[0] = 100
    written(tmp_path, ("image", "i", images.transpose(0, 3, 1, 2) if layout == "NCHW" else images))
    picture = decoded(accumulated(tmp_path), "i")
    assert picture.shape == (2 * 5, 8 * 7, max(channels, 3))
    for index, image in enumerate(images):
        row, column = divmod(index, 8)
        shown = picture[row * 5 : row * 5 + 5, column * 7 : column * 7 + 7]
        np.testing.assert_array_equal(shown, np.broadcast_to(image, shown.shape))
    assert not picture[5:, 3 * 7 :].any()


@pytest.mark.parametrize(
    ("values", "shown"),
    [
        (np.array([0.0, 0.5, 1.0]), [0, 128, 255]),
        (np.array([0.25, 0.25, 0.25]), [64, 64, 64]),
        (np.array([-2.0, 0.0, 2.0]), [0, 128, 255]),
        (np.array([np.nan, -np.inf, np.inf]), [0, 0, 255]),
        (np.array([0.0, np.nan, 0.4]), [0, 0, 102]),
        (np.array([-1.7e308, 0.0, 1.7e308]), [0, 128, 255]),
        (np.array([7.0, 7.0, 7.0]), [128, 128, 128]),
        (np.array([False, True, False]), [0, 255, 0]),
        (np.array([0, 100, 255], np.int64), [0, 100, 255]),
        (np.array([-100, 0, 100], np.int32), [0, 128, 255]),
    ],
)
def test_how_other_images_are_scaled(tmp_path, values, shown):
    written(tmp_path, ("image", "i", values.reshape(1, 1, 1, 3)))
    np.testing.assert_array_equal(decoded(accumulated(tmp_path), "i")[0, :, 0], shown)


@pytest.mark.parametrize("plugin", ["landscape", "LANDSCAPE"])
def test_landscape_is_an_image_and_a_tensor(tmp_path, plugin):
    picture = np.random.default_rng(0).integers(0, 256, (1, 6, 9, 3), np.uint8)
    loss = np.arange(12.0).reshape(3, 4)
    written(tmp_path, (plugin, "landscape_[1, 9]", Drawn({"image": picture, "tensor": loss})))
    np.testing.assert_array_equal(decoded(accumulated(tmp_path), "landscape_[1, 9]/image"), picture[0])
    np.testing.assert_array_equal(tensors(tmp_path, "landscape_[1, 9]/tensor")[0], loss)


class Branching(nn.Sequential):
    calls = 0

    def forward(self, inputs):
        self.calls += 1
        return super().forward(inputs) if inputs.sum() > 0 else inputs


class Residual(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.BatchNorm1d(2)
        self.calls = torch.zeros(1)
        self.register_buffer("seen", torch.zeros(1))

    def forward(self, inputs):
        self.seen.add_(1)
        return self.norm(inputs) + self.norm(inputs)


def graph_nodes(directory):
    return {node.name: node for node in accumulated(directory).Graph().node}


def test_graph_shows_layers_and_data_flow_once_beside_the_values_of_its_step(tmp_path):
    network = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Sequential(nn.Linear(4, 1)))
    with SummaryRecord(tmp_path, network=network, raise_exception=True) as record:
        write(record, ("scalar", "loss", 1.0), step=7)
        record.record(8)
    nodes = graph_nodes(tmp_path)
    assert nodes["Sequential/0"].op == "Linear"
    assert list(nodes["Sequential/1"].input) == ["Sequential/0"]
    assert list(nodes["Sequential/2/0"].input) == ["Sequential/1"]
    assert nodes["Sequential/2/0"].attr["weight"].s == b"(1, 4) float32"
    assert [(event.step, event.WhichOneof("what")) for event in events(tmp_path)] == [(7, "graph_def"), (7, "summary")]


def test_graph_of_a_network_that_cannot_be_traced_is_its_layers(tmp_path):
    network = Branching(nn.Linear(2, 2))
    written(tmp_path, ("graph", "g", network))
    assert list(graph_nodes(tmp_path)) == ["Branching/0"]
    assert network.calls == 0


def test_graph_leaves_the_network_as_it_was(tmp_path, record):
    network = Residual().train()
    before = copy.deepcopy(network.state_dict())
    record.record(1, train_network=network)
    record.flush()
    assert {"Residual/norm", "Residual/norm_1"} <= set(graph_nodes(tmp_path))
    assert network.training
    torch.testing.assert_close(network.state_dict(), before, rtol=0, atol=0)


def test_graph_as_bytes_and_as_message(tmp_path):
    from tensorboard.compat.proto.graph_pb2 import GraphDef
    from tensorboard.compat.proto.node_def_pb2 import NodeDef

    message = GraphDef(node=[NodeDef(name="n", op="o")])
    for index, value in enumerate((message, message.SerializeToString())):
        written(tmp_path / str(index), ("graph", "g", value))
        assert list(graph_nodes(tmp_path / str(index))) == ["n"]


@pytest.mark.parametrize(
    ("arguments", "error", "match"),
    [
        ({"step": True}, TypeError, "step must be an int"),
        ({"step": 2**63}, ValueError, "step must be an int from"),
        ({"step": 1, "train_network": 1}, TypeError, r"train_network must be a torch\.nn\.Module or None"),
        ({"step": 1, "plugin_filter": "scalar"}, TypeError, "plugin_filter must be a function"),
        ({"step": 1, "plugin_filter": lambda plugin: 1 / 0}, ZeroDivisionError, "division by zero"),
    ],
)
def test_record_refuses_wrong_arguments_and_keeps_the_values(tmp_path, record, arguments, error, match):
    record.add_value("scalar", "loss", 1.0)
    with pytest.raises(error, match=match):
        record.record(**arguments)
    record.record(np.int64(2))
    record.flush()
    assert scalars(tmp_path, "loss") == [(2, 1.0)]


def test_plugin_filter_drops_the_others(tmp_path, record):
    record.add_value("scalar", "loss", 1.0)
    record.add_value("tensor", "t", np.zeros(2))
    assert record.record(1, plugin_filter=lambda plugin: plugin == "scalar")
    record.record(2)
    record.flush()
    assert accumulated(tmp_path).Tags()["scalars"] == ["loss"]
    assert "t" not in accumulated(tmp_path).Tags()["tensors"]
    assert len(events(tmp_path)) == 1


def test_name_added_twice_keeps_the_newest_and_warns(tmp_path, record):
    record.add_value("scalar", "loss", 1.0)
    with pytest.warns(UserWarning, match="the scalar 'loss' was added twice for one step"):
        record.add_value("scalar", "loss", 2.0)
    record.record(1)
    write(record, ("scalar", "loss", 3.0))
    record.flush()
    assert scalars(tmp_path, "loss") == [(1, 2.0), (1, 3.0)]


def test_one_name_under_several_plugins_loses_nothing(tmp_path):
    written(tmp_path, ("scalar", "x", 1.0), ("tensor", "x", np.arange(3)), ("histogram", "x", np.arange(3)))
    assert scalars(tmp_path, "x") == [(1, 1.0)]
    assert tensors(tmp_path, "x/tensor")[0].tolist() == [0, 1, 2]
    assert accumulated(tmp_path).Histograms("x/histogram")[0].histogram_value.num == 3


def test_mode(tmp_path, record):
    for wrong, error in ((1, TypeError), ("test", ValueError), ("TRAIN", ValueError)):
        with pytest.raises(error, match="mode must be one of 'train', 'eval'"):
            record.set_mode(wrong)
    record.set_mode("eval")
    record.capture("scalar", "captured", 1.0)
    write(record, ("scalar", "added", 1.0))
    record.set_mode("train")
    record.capture("scalar", "captured", 2.0)
    record.capture("scalar", "captured", 3.0)
    record.record(2)
    record.flush()
    assert scalars(tmp_path, "added") == [(1, 1.0)]
    assert scalars(tmp_path, "captured") == [(2, 3.0)]


def test_closed_record(tmp_path):
    record = SummaryRecord(tmp_path)
    write(record, ("scalar", "loss", 1.0))
    record.close()
    record.close()
    record.flush()
    with pytest.warns(RuntimeWarning, match="nothing is recorded: the SummaryRecord of .* is closed"):
        assert record.record(2) is False
    assert record.record(3) is False
    with pytest.raises(ValueError, match="is closed; open a new one"), record:
        pass
    assert scalars(tmp_path, "loss") == [(1, 1.0)]
    record = SummaryRecord(tmp_path, raise_exception=True)
    record.close()
    with pytest.raises(ValueError, match="is closed; open a new one"):
        record.record(1)


def test_many_records_at_once_and_two_in_one_directory(tmp_path):
    records = [SummaryRecord(tmp_path / name, raise_exception=True) for name in ("a", "b", "b", "b")]
    for index, record in enumerate(records):
        write(record, ("scalar", f"loss{index}", float(index)))
    assert len({record.log_dir for record in records}) == 4
    for record in records:
        record.close()
    assert scalars(tmp_path / "a", "loss0") == [(1, 0.0)]
    # TensorBoard's reader takes each file of the directory in turn.
    assert [scalars(tmp_path / "b", f"loss{index}") for index in (1, 2, 3)] == [[(1, 1.0)], [(1, 2.0)], [(1, 3.0)]]


def test_pickled_record_writes_files_of_its_own(tmp_path):
    first = SummaryRecord(tmp_path, "p", "_s", None, 5000, True, {"tensor_format": "npy"})
    first.add_value("scalar", "waiting", 1.0)
    second = pickle.loads(pickle.dumps(first))
    for step, record in enumerate((first, second)):
        write(record, ("tensor", "t", np.ones(1) * step), step=step)
        record.close()
    assert len(event_files(tmp_path)) == 2
    assert scalars(tmp_path, "waiting") == [(0, 1.0)]
    assert [array.item() for array in tensors(tmp_path, "t")] in ([0.0, 1.0], [1.0, 0.0])
    assert len(list(tmp_path.glob("export_*/tensor/*.npy"))) == 2


@pytest.mark.parametrize(("linux", "second"), [(True, r"loss"), (False, r"loss\.[0-9a-f]{16}")])
def test_exported_tensors_whose_names_are_one_to_the_system(tmp_path, monkeypatch, linux, second):
    monkeypatch.setattr(system, "LINUX", linux)
    with SummaryRecord(tmp_path, export_options={"tensor_format": "npy"}, raise_exception=True) as record:
        for step in (1, 2):
            for value, name in enumerate(("Loss", "loss")):
                record.add_value("tensor", name, np.array([value]))
            record.record(step)
    found = {path.name: np.load(path).item() for path in tmp_path.glob("export_*/tensor/*")}
    assert sorted(found.values()) == [0, 0, 1, 1]
    for name, value in found.items():
        assert re.fullmatch(rf"{second if value else 'Loss'}_[12]\.npy", name)


def test_export_of_tensors(tmp_path):
    values = {"layer/weight": np.arange(6.0).reshape(2, 3), "b f:16": torch.ones(2, dtype=torch.bfloat16)}
    others = [("tensor", "é" * 200, np.zeros(1)), ("scalar", "loss", 1.0)]
    exported = [("tensor", name, value) for name, value in values.items()]
    written(tmp_path, *exported, *others, export_options={"tensor_format": "npy"})
    (folder,) = tmp_path.glob("export_*")
    assert re.fullmatch(r"export_\d+_\w+", folder.name)
    names = sorted(path.name for path in (folder / "tensor").iterdir())
    assert names[1:] == ["b%20f%3A16_1.npy", "layer%2Fweight_1.npy"]
    assert len(names[0]) <= 255
    np.testing.assert_array_equal(np.load(folder / "tensor" / "layer%2Fweight_1.npy"), values["layer/weight"])
    assert np.load(folder / "tensor" / "b%20f%3A16_1.npy").dtype == np.float32
    assert len(tensors(tmp_path, "layer/weight")) == 1


def test_rotation_loses_nothing(tmp_path):
    with SummaryRecord(tmp_path, max_file_size=4000, raise_exception=True) as record:
        for step in range(200):
            record.add_value("scalar", "loss", float(step))
            if step % 50 == 0:
                record.add_value("tensor", "large", np.full(1000, step))
            record.record(step)
    paths = event_files(tmp_path)
    large = [path for path in paths if path.stat().st_size > 4000]
    assert len(paths) > 5
    assert len(large) == 4
    assert all(path.stat().st_mode & 0o777 == 0o400 for path in paths)
    assert [event.step for event in events(tmp_path)] == list(range(200))
    assert scalars(tmp_path, "loss") == [(step, float(step)) for step in range(200)]
    assert [array[0] for array in tensors(tmp_path, "large")] == [0, 50, 100, 150]


def test_closing_names_values_without_a_step(tmp_path):
    record = SummaryRecord(str(tmp_path))
    for number in range(7):
        record.add_value("scalar", f"loss {number}", 1.0)
    record.flush()
    with pytest.warns(UserWarning, match=r"written, 7 in all: scalar 'loss 0', .*'loss 5' and 1 more.*record\("):
        record.close()
