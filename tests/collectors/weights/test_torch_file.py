"""PyTorch's files without PyTorch: compared with ``torch.load``, and files that ask for more than they are."""

from __future__ import annotations

import argparse
import collections
import enum
import pickle
import struct
import sys
import types
import zipfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import torch
from little_memory import little_memory
from runs import SmallNetwork
from torch import nn

from collectors.errors import CheckpointError
from collectors.networks.torch_network import to_array
from collectors.weights.foreign_checkpoint import read_checkpoint

DTYPES = (
    torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.float8_e4m3fn, torch.float8_e5m2, torch.int64,
    torch.int32, torch.int16, torch.int8, torch.uint8, torch.uint16, torch.uint32, torch.uint64, torch.bool,
    torch.complex64, torch.complex128,
)  # fmt: skip
# PyTorch writes them into its older format but cannot read them there.
NOT_BEFORE = ("torch.float8_e4m3fn", "torch.float8_e5m2", "torch.uint16", "torch.uint32", "torch.uint64")
FORMATS = pytest.mark.parametrize("new", [True, False], ids=["archive", "before 1.6"])


@pytest.fixture
def path(tmp_path):
    return tmp_path / "a.pt"


def check_refused(path, match, most=2**24):
    """A file is refused before it takes much memory."""
    with little_memory(most), pytest.raises(CheckpointError, match=match):
        read_checkpoint(path)


def values(count, dtype):
    numbers = torch.arange(1, count + 1, dtype=torch.float64)
    return (numbers * (1 + 2j) if dtype.is_complex else numbers % 5).to(dtype)


def states():
    whole = values(24, torch.float32)
    complex_values = values(6, torch.complex64)
    network = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4))
    optimizer = torch.optim.Adam(network.parameters())
    network(torch.ones(2, 3)).sum().backward()
    optimizer.step()
    return {
        "types": {str(dtype): values(6, dtype).reshape(2, 3) for dtype in DTYPES},
        "views": {
            "part": whole[3:9], "columns": whole.reshape(4, 6)[:, 1::2], "turned": whole.reshape(4, 6).T,
            "one": whole[7], "repeated": whole[:2].reshape(2, 1).expand(2, 3), "empty": whole[:0].reshape(0, 3),
            "channels last": whole.reshape(1, 2, 3, 4).to(memory_format=torch.channels_last),
        },
        "signs": {
            "conjugate": complex_values.conj(), "plain": complex_values,
            "negative": complex_values.clone().conj().imag,
        },
        "parameters": {"weight": nn.Parameter(whole), "fixed": nn.Parameter(whole[:4] + 1, requires_grad=False)},
        "network": network.state_dict(),
        "beside": {
            "state_dict": network.state_dict(), "optimizer": optimizer.state_dict(), "epoch": 3, "best": 0.25,
            "names": ("a", None, True), "random": torch.get_rng_state(), "bytes": b"abc", "array": bytearray(b"abc"),
            "set": {1, 2}, "device": torch.device("cpu"), "size": torch.Size([2, 3]), "type": torch.float32,
            "counted": collections.Counter("aab"), "ordered": collections.OrderedDict(a=1), "complex": 1 + 2j,
            "large": 2**100, (1, "a"): 2,
        },
    }  # fmt: skip


@FORMATS
@pytest.mark.parametrize("which", states())
def test_every_value_is_what_pytorch_reads(path, which, new):
    state = states()[which]
    if not new:
        state = {name: value for name, value in state.items() if name not in NOT_BEFORE}
    torch.save(state, path, _use_new_zipfile_serialization=new)
    expected = torch.load(path, weights_only=True)
    expected = expected.get("state_dict", expected)
    found = read_checkpoint(path).tensors
    assert list(found) == list(expected)
    for name, tensor in expected.items():
        array = to_array(tensor)
        assert found[name].dtype == array.dtype, name
        assert found[name].shape == array.shape, name
        assert found[name].tobytes() == array.tobytes(), name


def test_files_without_checksums_and_with_a_wrong_one(path):
    before = torch.serialization.get_crc32_options()
    torch.serialization.set_crc32_options(False)
    try:
        torch.save({"a": torch.ones(1000)}, path)
    finally:
        torch.serialization.set_crc32_options(before)
    assert (read_checkpoint(path).tensors["a"] == 1).all()
    torch.save({"a": torch.ones(1000)}, path)
    content = bytearray(path.read_bytes())
    content[content.index(struct.pack("<f", 1) * 100) + 200] ^= 1
    path.write_bytes(content)
    check_refused(path, r"a.pt is damaged .*'0' has another checksum than its values.*copy it")


def test_the_other_byte_order(tmp_path):
    """As a machine of the other order writes it: each number's bytes turned, and a member that says so."""
    state = {str(dtype): values(6, dtype) for dtype in DTYPES}
    turned = {}
    for name, tensor in state.items():
        storage = tensor.clone().untyped_storage()
        storage.byteswap(tensor.dtype)
        turned[name] = torch.tensor([], dtype=tensor.dtype).set_(storage)
    torch.save(turned, tmp_path / "a.pt")
    with zipfile.ZipFile(tmp_path / "a.pt") as old, zipfile.ZipFile(tmp_path / "b.pt", "w") as new:
        for info in old.infolist():
            new.writestr(info.filename, b"big" if info.filename.endswith("byteorder") else old.read(info))
    found = read_checkpoint(tmp_path / "b.pt").tensors
    for name, tensor in torch.load(tmp_path / "b.pt", weights_only=True).items():
        assert found[name].tobytes() == to_array(state[name]).tobytes(), name
        # PyTorch forgets to turn the types that have no storage class of their own.
        assert name in NOT_BEFORE or found[name].tobytes() == to_array(tensor).tobytes(), name


def test_what_is_not_wanted_is_not_read(path):
    """The moments of Adam are twice the weights."""
    weights = {"a": torch.ones(2**20)}
    torch.save({"state_dict": weights, "optimizer": {0: torch.ones(2**22)}}, path)
    with little_memory(10 * 2**20):
        assert list(read_checkpoint(path).tensors) == ["a"]


class Call:
    def __init__(self, function, *arguments):
        self.function, self.arguments = function, arguments

    def __reduce__(self):
        return self.function, self.arguments


def archive(path, content, method=zipfile.ZIP_STORED, **storages):
    with zipfile.ZipFile(path, "w", method) as file:
        file.writestr("a/data.pkl", content)
        file.writestr("a/version", "3\n")
        for key, stored in storages.items():
            file.writestr(f"a/data/{key}", stored)


def tensor(shape, count, key="k", strides="(1,)", offset=0):
    """Returns the instructions that make one tensor of a storage."""

    def numbers(text):
        return b"(" + b"".join(number(int(item)) for item in text.strip("()").split(",") if item.strip()) + b"t"

    return (
        b"ctorch._utils\n_rebuild_tensor_v2\n((X\x07\0\0\0storagectorch\nFloatStorage\n"
        + text(key) + text("cpu") + number(count) + b"tQ" + number(offset)
        + numbers(shape) + numbers(strides) + b"\x89ccollections\nOrderedDict\n)RtR"
    )  # fmt: skip


def text(value):
    return b"X" + struct.pack("<I", len(value.encode())) + value.encode()


def number(value):
    packed = pickle.encode_long(value)
    return b"\x8a" + bytes([len(packed)]) + packed


def state(**items):
    return b"\x80\x02}(" + b"".join(text(name) + value for name, value in items.items()) + b"u."


ONE = tensor("(1,)", 1)
LONG_LIST = b"](" + b"K\x01" * 1000 + b"eq\x01"
HOSTILE = {
    "nothing but a call": (pickle.dumps(Call(bytearray, 6 << 30), 2), "holds a Thing, not a dictionary of tensors"),
    "array of bytes": (pickle.dumps({"a": Call(bytearray, 6 << 30)}, 2), "holds no tensors"),
    "storage of no type": (
        state(a=b"ctorch.storage\nUntypedStorage\n" + number(6 << 30) + b"\x85R", b=ONE), ""
    ),
    "tensor by its class": (
        state(a=b"ctorch\nFloatTensor\n" + number(6 << 30) + b"\x85R", b=ONE), "holds 'a' as a sparse, quantized or"
    ),
    "quantized": (
        state(a=b"ctorch._utils\n_rebuild_qtensor\n()tR", b=ONE), "holds 'a' as a sparse, quantized or empty"
    ),
    "storage that lies": (state(a=tensor("(99999999999,)", 99999999999)), "more than the file's"),
    "view beyond the storage": (state(a=tensor("(4,)", 1)), r"ends beyond its storage of 1 elements"),
    "offset beyond the storage": (state(a=tensor("(1,)", 1, offset=2**61)), "ends beyond its storage"),
    "negative stride": (state(a=tensor("(2,)", 1, strides="(-1,)")), "that are no short list"),
    "missing storage": (state(a=tensor("(1,)", 1, key="../data.pkl")), "the storage '../data.pkl' is missing"),
    "storage shorter than it says": (state(a=tensor("(2,)", 2)), "ends beyond its storage"),
    "many axes": (state(a=tensor(str((1,) * 100), 1, strides=str((1,) * 100))), "that are no short list"),
    "repeated value": (state(a=tensor("(99999999,)", 1, strides="(0,)")), "more than the file's"),
    "far memo": (b"\x80\x02}r" + struct.pack("<I", 2**31 - 1) + b".", "holds no tensors"),
    "claimed text": (b"\x80\x02X\xff\xff\xff\x7f.", "is damaged or no PyTorch file"),
    "eight byte claim": (b"\x80\x05\x96" + struct.pack("<Q", 2**40) + b".", "is damaged or no PyTorch file"),
    "frame": (b"\x80\x04\x95" + struct.pack("<Q", 2**40) + b"}.", "holds no tensors"),
    "long list again and again": (
        b"\x80\x02" + LONG_LIST + b"](" + b"ctorch\nSize\nh\x01\x85R" * 10_000 + b"e.",
        "unsupported pickle of more than 2000000 instructions",
    ),
    "key that takes for ever": (
        b"\x80\x02}" + text("a") + b"q\x01" + b"h\x01\x86q\x01" * 100 + b"K\x01s.", "holds no tensors"
    ),
    "shape that takes for ever to write": (
        b"\x80\x02]q\x01" + b"](h\x01h\x01eq\x01" * 100 + b"}" + text("a") + ONE.replace(number(1) + b"t", b"h\x01t", 1)
        + b"s.", "unsupported persistent object",
    ),
    "strides that take for ever to write": (
        b"\x80\x02]q\x01" + b"](h\x01h\x01eq\x01" * 100 + b"}" + text("a")
        + ONE.replace(b"(" + number(1) + b"t\x89", b"h\x01\x89", 1) + b"s.", "that are no short list",
    ),
    "no end": (b"\x80\x02}", "is damaged or no PyTorch file"),
    "nothing on the stack": (b"\x80\x02t.", "is damaged or no PyTorch file"),
    "lone surrogate": (
        b"\x80\x02}X\x03\0\0\0\xed\xa0\x80" + ONE + b"s.", r"a tensor called '\\ud800', which is no Unicode text"
    ),
}  # fmt: skip


@pytest.mark.parametrize("which", HOSTILE)
def test_a_small_file_takes_little_memory(path, which):
    content, match = HOSTILE[which]
    archive(path, content, k=struct.pack("<f", 5))
    if match:
        check_refused(path, match, 2**26)
    else:
        with little_memory(2**26):
            assert read_checkpoint(path).tensors == {"b": 5}


@pytest.mark.parametrize("method", [zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_compressed_storages(path, method):
    count = 2**23
    archive(path, state(a=tensor(f"({count},)", count)), method, k=bytes(4 * count))
    assert path.stat().st_size < 2**17
    check_refused(path, "is compressed or encrypted, as PyTorch writes")


def test_storages_that_share_their_bytes(path):
    """Each of 200 members names the same megabyte."""
    size, many = 2**20, 200
    items = {f"t{index}": tensor(f"({size // 4},)", size // 4, key=f"k{index}") for index in range(many)}
    archive(path, state(**items), k0=bytes(size))
    with zipfile.ZipFile(path, "a") as file:
        first = file.getinfo("a/data/k0")
        for index in range(1, many):
            other = zipfile.ZipInfo(f"a/data/k{index}")
            other.header_offset, other.file_size, other.compress_size = first.header_offset, size, size
            other.CRC = first.CRC
            file.filelist.append(other)
            file.NameToInfo[other.filename] = other
        file._didModify = True  # type: ignore[attr-defined]
    check_refused(path, "its members claim more bytes than the file has")


def test_many_views_of_one_storage(path):
    count = 2**18
    views = {f"t{index}": tensor(f"({count - 100},)", count, offset=index) for index in range(100)}
    archive(path, state(**views), k=bytes(4 * count))
    check_refused(path, r"holds 't4' of shape .* more than the file's")


@pytest.mark.parametrize("count", [2**40, -1, 3])
def test_older_files_whose_storages_lie(path, count):
    torch.save({"a": torch.ones(2)}, path, _use_new_zipfile_serialization=False)
    content = bytearray(path.read_bytes())
    content[-16:-8] = struct.pack("<q", count)
    path.write_bytes(content)
    check_refused(path, r"has -?\d+ elements, more than are there")


@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")
def test_a_program_of_torchscript(path):
    # PyTorch compresses its code.
    torch.jit.save(torch.jit.script(nn.Linear(2, 2)), path)
    check_refused(path, r"is a program of TorchScript .*, not a state dict\. .*torch.jit.load")


WEIGHT = torch.arange(6.0).reshape(2, 3)
OTHER = -WEIGHT


def check_weight(path, content, new, **options):
    """The weight in a file is read, whatever else is beside it."""
    torch.save(content, path, _use_new_zipfile_serialization=new, **options)
    np.testing.assert_array_equal(read_checkpoint(path).tensors["weight"], WEIGHT.numpy())


@FORMATS
@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_other_protocols(path, protocol, new):
    beside = {"bytes": b"abc" * 100, "array": bytearray(b"abc" * 100), "set": {1, 2}, "frozen": frozenset({1})}
    check_weight(path, {"state_dict": {"weight": WEIGHT}, **beside}, new, pickle_protocol=protocol)


class Kind(enum.Enum):
    ONE = 1


@dataclass
class Settings:
    """What a program of somebody else keeps beside the weights."""

    kind: Kind
    depths: list[int]


@FORMATS
def test_objects_beside_the_weights_are_passed_over(path, new):
    counts = collections.defaultdict(list, {"a": [1]})
    beside = {"args": argparse.Namespace(lr=0.1), "path": Path("x"), "best": np.float64(0.5), "counts": counts}
    check_weight(path, {"weight": WEIGHT, **beside}, new)
    more = {"settings": Settings(Kind.ONE, [1]), "curve": np.ones(3)}
    check_weight(path, {"state_dict": {"weight": WEIGHT}, **beside, **more}, new)


@FORMATS
def test_paths_that_python_3_13_saved_are_passed_over(path, new, monkeypatch):
    """It calls their module pathlib._local, which no other version does."""
    module = types.ModuleType("pathlib._local")
    reduced = {"__module__": "pathlib._local", "__reduce__": lambda path: (type(path), ())}
    module.PosixPath = type("PosixPath", (), reduced)
    monkeypatch.setitem(sys.modules, "pathlib._local", module)
    check_weight(path, {"weight": WEIGHT, "path": module.PosixPath()}, new)


REMEDY = "which only code can .* load it yourself where its classes can be imported, and save its state dict alone"


@FORMATS
@pytest.mark.parametrize(
    ("content", "match"),
    [
        ({"a": torch.ones(2), "b": np.ones(2)}, r"its 'b' is an object of numpy.*_reconstruct, which only code"),
        ({"model": Settings(Kind.ONE, []), "step": torch.ones(1)}, r"its 'model' is an object of .*Settings, which"),
        (Settings(Kind.ONE, []), r"it is an object of .*Settings, which only code can make\)\. If you trust the file"),
        ({"model": SmallNetwork(), "epoch": 3}, rf"its 'model' is an object of .*SmallNetwork, {REMEDY}"),
        (SmallNetwork(), rf"it is an object of .*SmallNetwork, {REMEDY}"),
    ],
)
def test_objects_that_may_hold_weights_are_refused(path, content, match, new):
    torch.save(content, path, _use_new_zipfile_serialization=new)
    check_refused(path, f"cannot be read as plain tensors \\({match}")


NO_NAMES = "names are neither texts nor numbers, or are the same once written out"


@pytest.mark.parametrize(
    ("content", "match"),
    [
        ({(1, 2): torch.ones(2), "b": torch.ones(2) + 1}, NO_NAMES),
        ({0: torch.ones(2), "0": torch.ones(2) + 1}, NO_NAMES),
        ({(1, 2): 3, "epoch": 1}, r"it has \['epoch'\]\. Save the state dict alone\."),
        (
            {"epoch": 1, "mine": {"w": torch.ones(2)}},
            r"it has \['epoch', 'mine'\]\. `landscape convert --strip-prefix mine\.` reads those there; or save",
        ),
        ({"a": torch.ones(1).expand(5)}, "repeat values of their storages; save contiguous copies of them"),
    ],
    ids=["a name that is no text", "a name twice", "no tensors", "tensors under a key", "a repeated value"],
)
def test_what_is_refused_with_a_remedy(path, content, match):
    torch.save(content, path)
    check_refused(path, match)


@pytest.mark.filterwarnings("ignore:ComplexHalf:UserWarning")
def test_the_remedy_fits(path):
    torch.save({"a": torch.ones(1, dtype=torch.complex32)}, path)
    check_refused(path, "unsupported element type complex32; convert such tensors")
    path.write_bytes(pickle.dumps({"w": np.ones(3)}))
    check_refused(path, r"\(it is a pickle that torch.save did not write\). If you trust")
    path.write_bytes(b"hello\n\0")
    check_refused(path, r"no PyTorch file \(it refers to what it does not have\); copy it again")


def test_arrays_share_nothing(path):
    whole = torch.ones(4)
    torch.save({"a": whole[:2], "b": whole[1:]}, path)
    found = read_checkpoint(path).tensors
    found["a"][:] = 7
    np.testing.assert_array_equal(found["b"], np.ones(3, np.float32))


NESTED = {
    "Composer's": ({"state": {"model": {"w": WEIGHT}, "optimizers": {}}, "rng": []}, None, WEIGHT, ()),
    "by its keys": ({"state": {"model": {"w": WEIGHT}}}, "state.model.", WEIGHT, ("those under 'state.model.'",)),
    "an average": ({"model": {"w": WEIGHT}, "ema": {"w": OTHER}}, "ema.", OTHER, ("those under 'ema.'",)),
    "an average that is not asked for": (
        {"model": {"w": WEIGHT}, "ema": {"w": OTHER}, "epoch": 3},
        None,
        WEIGHT,
        ("left out: other weights under 'ema', which strip_prefix='ema.' takes",),
    ),
    "keys and a prefix": (
        {"model": {"head.w": OTHER}, "ema": {"encoder.w": WEIGHT, "head.w": OTHER}},
        "ema.encoder.",
        WEIGHT,
        ("those under 'ema.encoder.'", "'encoder.' is removed", "left out, without 'encoder.'"),
    ),
    "names before keys": ({"model": {"model.w": WEIGHT}}, "model.", WEIGHT, ("'model.' is removed",)),
    "an optimizer beside": (
        {"model": {"w": WEIGHT}, "optimizer": {"state": {0: {"exp_avg": OTHER}}, "param_groups": []}},
        None,
        WEIGHT,
        (),
    ),
}


@FORMATS
@pytest.mark.parametrize("kind", NESTED)
def test_keys_lead_to_the_wanted_tensors(path, kind, new):
    content, prefix, expected, texts = NESTED[kind]
    torch.save(content, path, _use_new_zipfile_serialization=new)
    found = read_checkpoint(path, prefix)
    said = [*found.said, *found.left_out]
    assert set(found.tensors) == {"w"}
    np.testing.assert_array_equal(found.tensors["w"], expected.numpy())
    assert len(said) == len(texts)
    assert all(text in sentence for text, sentence in zip(texts, said, strict=True)), said


def test_keys_that_lead_nowhere(path):
    torch.save({"model": {"w": WEIGHT}, "ema": {"w": OTHER}}, path)
    with pytest.raises(CheckpointError, match=r"no tensor whose name begins with 'average\.'.*Choose another"):
        read_checkpoint(path, "average.")
    with pytest.raises(CheckpointError, match=r"no tensor whose name begins with 'encoder\.'"):
        read_checkpoint(path, "ema.encoder.")
