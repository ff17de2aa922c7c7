"""The protocol buffers of MindSpore's summary files, as far as a landscape needs them.

Names, numbers and types are MindSpore's own (2.10: summary.proto and anf_ir.proto). They live in a pool of their own,
because MindSpore registers the same names where it is imported.
"""

from __future__ import annotations

import functools
from types import SimpleNamespace
from typing import Any

_MESSAGES: dict[str, dict[str, tuple[int, str]]] = {
    "Event": {"wall_time": (1, "double"), "step": (2, "int64"), "version": (3, "string"), "summary": (5, "Summary")},
    "Summary": {"value": (1, "repeated Value")},
    "Value": {"tag": (1, "string"), "loss_landscape": (10, "LossLandscape")},
    "LossLandscape": {
        "landscape": (1, "Point"),
        "loss_path": (2, "LossPath"),
        "metadata": (3, "Metadata"),
        "convergence_point": (4, "Point"),
    },
    "Point": {"x": (1, "TensorProto"), "y": (2, "TensorProto"), "z": (3, "TensorProto")},
    "LossPath": {"intervals": (1, "repeated int32"), "points": (2, "Point")},
    "Metadata": {"decomposition": (1, "string"), "unit": (2, "string"), "step_per_epoch": (3, "int32")},
    "TensorProto": {"dims": (1, "repeated int64"), "data_type": (2, "int32"), "float_data": (3, "repeated float")},
}
FLOAT32 = 11
"""``DT_FLOAT32`` of MindSpore's data types; on the wire an enumeration is an integer."""


@functools.cache
def messages() -> SimpleNamespace:
    """Returns the classes of the messages, by name.

    Raises:
        ImportError: protobuf is not installed; Ray brings it.
    """
    try:
        from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
    except ImportError as error:
        raise ImportError("the format mindinsight needs protobuf: pip install 'protobuf>=4.22'") from error
    kinds = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(name="landscape_summary.proto", package="landscape", syntax="proto2")
    for message_name, fields in _MESSAGES.items():
        message = file.message_type.add(name=message_name)
        for name, (number, text) in fields.items():
            repeated, type_name = text.startswith("repeated "), text.removeprefix("repeated ")
            field = message.field.add(name=name, number=number)
            field.label = kinds.LABEL_REPEATED if repeated else kinds.LABEL_OPTIONAL
            if type_name in _MESSAGES:
                field.type, field.type_name = kinds.TYPE_MESSAGE, f".landscape.{type_name}"
            else:
                field.type = kinds.Type.Value(f"TYPE_{type_name.upper()}")
            if text == "repeated float":
                field.options.packed = True
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    found: dict[str, Any] = {
        name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"landscape.{name}")) for name in _MESSAGES
    }
    return SimpleNamespace(**found)
