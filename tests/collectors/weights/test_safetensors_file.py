import contextlib
import hashlib
import json
import os
import tracemalloc

import ml_dtypes
import numpy as np
import pytest
import safetensors.numpy
from hypothesis import given, settings
from hypothesis import strategies as st
from runs import names

from collectors.errors import CheckpointError
from collectors.files.local_files import temporary_sibling, write_text
from collectors.networks.weight_space import numpy_dtype, state_sha256
from collectors.weights.safetensors_file import (
    STORABLE_DTYPES,
    CheckpointFile,
    MemoryState,
    file_sha256,
    write_checkpoint,
)


def example(dtype="float32"):
    generator = np.random.default_rng(0)
    return {
        "matrix": generator.normal(size=(7, 5)).astype(numpy_dtype(dtype)),
        "scalar": np.array(3).astype(numpy_dtype(dtype)),
        "empty": np.zeros((0, 4), numpy_dtype(dtype)),
        "nan": np.array([np.nan, 0.0, -0.0]).astype(ml_dtypes.bfloat16),
    }


def with_header(path, header, data=b""):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + data)
    return path


def check_refused(path, match):
    with pytest.raises(CheckpointError, match=match):
        CheckpointFile(path)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "net_3_step.safetensors"


@pytest.mark.parametrize("dtype", sorted(STORABLE_DTYPES))
def test_every_element_type_comes_back_bit_for_bit(path, dtype):
    state = example(dtype) if dtype != "float8_e8m0fnu" else {"matrix": np.full((7, 5), 2.0, ml_dtypes.float8_e8m0fnu)}
    write_checkpoint(path, state)
    file = CheckpointFile(path)
    assert file.shapes == {name: array.shape for name, array in state.items()}
    for name, array in state.items():
        found = file.read(name)
        assert found.dtype == array.dtype
        assert found.tobytes() == array.tobytes()


def test_arrays_of_any_memory_order_are_written(path):
    matrix = np.arange(12.0).reshape(3, 4)
    state = {"transposed": matrix.T, "strided": matrix[::2, ::-1], "broadcast": np.broadcast_to(1.5, (2, 3))}
    state["foreign bytes"] = np.arange(3, dtype=">f4")
    write_checkpoint(path, state)
    file, by_library = CheckpointFile(path), safetensors.numpy.load_file(path)
    for name, array in state.items():
        assert np.array_equal(file.read(name), array)
        assert np.array_equal(by_library[name], array)


@pytest.mark.parametrize("reader", [CheckpointFile, lambda path: MemoryState(example())])
def test_blocks_are_parts_of_the_flat_array(path, reader):
    state = example()
    write_checkpoint(path, state)
    held = reader(path)
    flat = state["matrix"].reshape(-1)
    for start, stop in [(0, 0), (0, 35), (3, 17), (34, 35), (35, 35)]:
        assert np.array_equal(held.read_block("matrix", start, stop), flat[start:stop])
    copy = held.read("matrix")
    copy[:] = 0
    assert np.array_equal(held.read("matrix"), state["matrix"])


def test_hashes_and_no_file_stays_open(path):
    digest = write_checkpoint(path, example())
    assert digest == hashlib.sha256(path.read_bytes()).hexdigest() == file_sha256(path) == CheckpointFile(path).sha256()
    assert MemoryState(example()).sha256() == state_sha256(example())
    before = names("/proc/self/fd")
    files = [CheckpointFile(path) for _ in range(20)]
    for file in files:
        file.read("matrix")
    assert len(names("/proc/self/fd")) <= len(before)


def test_writing_replaces_the_old_file_or_keeps_it_and_leaves_nothing_else(path):
    write_checkpoint(path, {"a": np.zeros(3)})
    write_checkpoint(path, {"a": np.ones(3)})
    with pytest.raises(TypeError, match="'a' is complex128, which checkpoints cannot hold; convert it to one of"):
        write_checkpoint(path, {"a": np.zeros(3, complex)})
    assert np.array_equal(CheckpointFile(path).read("a"), np.ones(3))
    write_text(path.with_name("notes.json"), "ä")
    assert path.with_name("notes.json").read_bytes() == "ä".encode()
    assert names(path.parent) == ["net_3_step.safetensors", "notes.json"]


def test_equal_states_are_equal_files(tmp_path):
    information = {name: name for name in "abcdefgh"}
    state = {name: np.arange(3) for name in "hgfedcba"}
    digests = {write_checkpoint(tmp_path / str(index), state, information) for index in range(20)}
    assert len(digests) == 1
    assert CheckpointFile(tmp_path / "0").metadata == information


def test_the_file_is_the_library_s_byte_for_byte(path):
    state = {
        "b": np.arange(3, dtype=np.int8),
        "weight": np.arange(6, dtype=np.float32).reshape(2, 3),
        "a": np.arange(6.0).reshape(2, 3).T,
        "näme": np.zeros((), np.float64),
        "empty": np.zeros((0, 4), np.float16),
        "brain": np.ones(5, ml_dtypes.bfloat16),
    }
    digest = write_checkpoint(path, state, {"network": "Net"})
    content = path.read_bytes()
    assert CheckpointFile(path).metadata == {"network": "Net"}
    assert CheckpointFile(path).read("näme") == 0
    whole = {name: np.ascontiguousarray(array).reshape(array.shape) for name, array in state.items()}
    assert content == safetensors.numpy.save(whole, {"network": "Net"})
    assert digest == hashlib.sha256(content).hexdigest()


def test_temporary_names_differ_and_tell_the_process(path):
    one, two = temporary_sibling(path), temporary_sibling(path)
    assert one != two
    assert one.parent == path.parent
    assert one.name.startswith(f".{path.name}.{os.getpid()}.")


def test_missing_file_and_a_header_that_claims_more_than_the_file(path):
    check_refused(path, r"net_3_step.safetensors cannot be read: No such file")
    check_refused(path.parent, "cannot be read: Is a directory")
    path.write_bytes((2**63).to_bytes(8, "little") + b"{}")
    check_refused(path, "its header claims 9223372036854775808 bytes, the file has 10")


def test_truncated_at_any_byte(path):
    write_checkpoint(path, {"a": np.arange(6, dtype=np.float32), "b": np.ones(2)})
    whole = path.read_bytes()
    for length in range(1, len(whole)):
        path.write_bytes(whole[:length])
        check_refused(path, r"not a whole safetensors file .* copy it again or train")
    path.write_bytes(whole + b"\0")
    check_refused(path, rf"describes {len(whole)} bytes, the file has {len(whole) + 1}")


def test_truncated_after_it_was_opened(path):
    write_checkpoint(path, {"a": np.arange(6.0)})
    file = CheckpointFile(path)
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(CheckpointError, match="is truncated inside 'a'; copy it again"):
        file.read("a")
    path.unlink()
    with pytest.raises(CheckpointError, match="cannot be read: No such file"):
        file.read("a")


def tensor(dtype="F32", shape=(2,), offsets=(0, 8), **more):
    return {"dtype": dtype, "shape": shape, "data_offsets": offsets, **more}


UNREADABLE = "its header cannot be read"
NO_COUNT = "'a' has a shape or an offset that is not a non-negative integer"


@pytest.mark.parametrize(
    ("header", "match"),
    [
        *((header, UNREADABLE) for header in (b"{", b"[]", b"\xff\xfe\xfd", b"[" * 100_000)),
        *(({"a": wrong}, UNREADABLE) for wrong in (3, None, {}, tensor(dtype="F99"), tensor(dtype=["F32"]))),
        *(({"a": wrong}, UNREADABLE) for wrong in (tensor(shape=2), tensor(offsets=[0, 8, 8]))),
        ({"__metadata__": 3}, UNREADABLE),
        *(({"a": tensor(shape=shape)}, NO_COUNT) for shape in (["2"], [2.0], [True], [-2])),
        ({"a": tensor(offsets=[-8, 0])}, NO_COUNT),
        ({"a": tensor(offsets=[8, 0])}, "'a' has -8 bytes for the shape"),
        ({"a": tensor(shape=[3])}, r"'a' has 8 bytes for the shape \(3,\) of float32"),
        ({"a": tensor(offsets=[8, 16])}, "describes .* bytes, the file has"),
        ({"a": tensor(), "b": tensor()}, "'b' overlaps another tensor"),
        ({"a": tensor(), "b": tensor(shape=[1], offsets=[4, 8])}, "'b' overlaps another tensor"),
        ({"a": tensor(shape=[2**62, 2], offsets=[0, 2**65])}, NO_COUNT),
        ({"a": tensor(shape=[0, 2**62], offsets=[0, 0])}, NO_COUNT),
        ({"a": tensor(shape=[0, 2**40, 2**40], offsets=[0, 0])}, "which is too large"),
        ({"a": tensor(shape=[1] * 65 + [2])}, "'a' has 66 axes, more than 32"),
        ({"a": tensor(shape=[2**47], offsets=[0, 2**49])}, NO_COUNT),
        ({"a": tensor(shape=[2**45], offsets=[0, 2**47])}, "describes .* bytes, the file has"),
    ],
)
def test_damaged_headers(path, header, match):
    with_header(path, header, bytes(8))
    check_refused(path, f"net_3_step.safetensors is not a whole safetensors file .*{match}")


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-16-le", "utf-32", "utf-32-be"])
def test_a_header_in_another_encoding_than_utf_8(path, encoding):
    with_header(path, json.dumps({"a": tensor()}).encode(encoding), bytes(8))
    check_refused(path, r"net_3_step.safetensors is not a whole .*\(its header cannot be read: ")
    with pytest.raises(safetensors.SafetensorError, match="header"):
        safetensors.numpy.load_file(path)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    path = tmp_path_factory.mktemp("whole") / "a.safetensors"
    write_checkpoint(path, example(), {"network": "Net"})
    return path


@pytest.mark.slow
@settings(max_examples=300)
@given(data=st.data())
def test_changed_headers_give_values_or_a_typed_error(whole, data):
    content = bytearray(whole.read_bytes())
    header = 8 + int.from_bytes(content[:8], "little")
    for _ in range(data.draw(st.integers(1, 4))):
        place = data.draw(st.integers(0, header - 1))
        how = data.draw(st.sampled_from(["replace", "insert", "delete", "digit"]))
        if how == "replace":
            content[place] = data.draw(st.integers(0, 255))
        elif how == "insert":
            content[place:place] = data.draw(st.binary(min_size=1, max_size=4))
        elif how == "delete":
            del content[place : place + data.draw(st.integers(1, 8))]
        else:
            digits = [index for index in range(8, min(header, len(content))) if content[index : index + 1].isdigit()]
            content[data.draw(st.sampled_from(digits))] = data.draw(st.sampled_from(b"0123456789-.e"))
    if data.draw(st.booleans()):
        # The length that the changed header really has, so that its content is looked at.
        content[:8] = max(0, header - 8 + len(content) - whole.stat().st_size).to_bytes(8, "little")
    changed = whole.with_name("changed.safetensors")
    changed.write_bytes(content)
    tracemalloc.start()
    try:
        with contextlib.suppress(CheckpointError):
            file = CheckpointFile(changed)
            for name, shape in file.shapes.items():
                assert file.read(name).shape == shape
        assert tracemalloc.get_traced_memory()[1] < 4 * 2**20
    finally:
        tracemalloc.stop()
