"""The export for MindInsight, read back with MindSpore's own protocol buffers."""

import struct

import numpy as np
from mindspore.train import summary_pb2
from mindspore.train.summary.writer import BaseWriter
from surfaces import landscape, loss


def records(path):
    """Reads records as MindInsight does: by their lengths; MindSpore has no reader of its own."""
    content, place, found = path.read_bytes(), 0, []
    while place < len(content):
        (size,) = struct.unpack_from("<Q", content, place)
        found.append(content[place + 12 : place + 12 + size])
        place += size + 16
    assert place == len(content)
    return found


def values(tensor):
    return np.array(tensor.float_data).reshape(tensor.dims)


def test_mindspore_reads_each_value_at_its_place(tmp_path):
    (path,) = landscape().export(tmp_path, "mindinsight")
    version, event = (summary_pb2.Event.FromString(content) for content in records(path))
    assert version.version == "MindSpore.Event:1"
    (value,) = event.summary.value
    assert value.tag == "landscape_[2, 9]"
    assert value.WhichOneof("value") == "loss_landscape"
    message = value.loss_landscape
    known = summary_pb2.Event.FromString(event.SerializeToString())
    known.DiscardUnknownFields()
    assert known == event
    x, y, z = (values(tensor) for tensor in (message.landscape.x, message.landscape.y, message.landscape.z))
    assert (x.shape, y.shape, z.shape) == ((11,), (7,), (7, 11))
    np.testing.assert_allclose(z, loss(*np.meshgrid(x, y)), rtol=1e-5)
    path_points = message.loss_path.points
    assert list(message.loss_path.intervals) == [2, 5, 9]
    np.testing.assert_allclose(values(path_points.z), loss(values(path_points.x), values(path_points.y)), rtol=1e-5)
    assert message.metadata.decomposition == "PCA"
    assert message.metadata.unit == "epoch"
    assert message.metadata.step_per_epoch == 4
    np.testing.assert_allclose(values(message.convergence_point.z), [loss(0, 0)], rtol=1e-6)
    data_type = message.landscape.z.DESCRIPTOR.fields_by_name["data_type"].enum_type
    assert data_type.values_by_number[message.landscape.z.data_type].name == "DT_FLOAT32"


def test_the_bytes_are_those_of_mindspores_own_writer(tmp_path):
    (path,) = landscape().export(tmp_path, "mindinsight")
    writer = BaseWriter(str(tmp_path / "theirs"))
    for content in records(path):
        # Parsed and written again by MindSpore's messages, framed and checksummed by its writer.
        writer.write("summary", summary_pb2.Event.FromString(content).SerializeToString())
    writer.close()
    assert (tmp_path / "theirs").read_bytes() == path.read_bytes()
