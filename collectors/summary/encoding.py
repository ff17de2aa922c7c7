"""Recorded values as TensorBoard's protocol buffers; images become one picture, histograms get bins of our own."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image
from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.proto.summary_pb2 import DATA_CLASS_TENSOR, HistogramProto, Summary, SummaryMetadata
from tensorboard.plugins.hparams.summary_v2 import Metric, hparams_config_pb, hparams_pb
from tensorboard.plugins.text.summary_v2 import text_pb
from tensorboard.util.tensor_util import make_tensor_proto

from ..shapes import Float64, Int64, UInt8
from .lineage import LINEAGE_KINDS, hyperparameters
from .values import SummaryStep, SummaryValue

TENSOR_PLUGIN = "summary_landscape_tensor"
MOST_BINS = 90
_IMAGES_PER_ROW = 8
_SHOWN = 10
_HISTOGRAM_BLOCK = 2**18


class SummaryEncoder:
    """Turns steps into serialized events; a name that comes under another plugin gets that plugin's name appended."""

    def __init__(self) -> None:
        # TensorBoard knows a tag under one plugin only and drops the others' values.
        self._plugins: dict[str, str] = {}

    def encode(self, step: SummaryStep) -> list[bytes]:
        """Returns the events of one step: one for all values, and one for each graph."""
        graphs, others = [], []
        for value in step.values:
            if isinstance(value.content, bytes):
                graphs.append(value.content)
            else:
                others += self._encode_value(value)
        events = [Event(step=step.step, wall_time=step.wall_time, graph_def=graph) for graph in graphs]
        if others:
            events.append(Event(step=step.step, wall_time=step.wall_time, summary=Summary(value=others)))
        return [event.SerializeToString() for event in events]

    def _encode_value(self, value: SummaryValue) -> list[Summary.Value]:
        kind, name, content = value.kind, value.name, value.content
        if isinstance(content, Mapping):
            facts = json.dumps(content, indent=2, ensure_ascii=False)
            return [*text_pb(self._tag(name, "text"), f"```json\n{facts}\n```").value]
        assert isinstance(content, np.ndarray)
        if kind == "scalar":
            return [scalar_value(self._tag(name, kind), float(content))]
        if kind == "image":
            return [_image_value(self._tag(name, kind), image_grid(content))]
        if kind == "histogram":
            return self._histogram_values(name, content)
        return [
            _tensor_value(self._tag(name, kind), content),
            *text_pb(self._tag(f"{name}/text", "text"), describe(content)).value,
        ]

    def _histogram_values(self, name: str, content: NDArray[Any]) -> list[Summary.Value]:
        result = histogram(content)
        proto = HistogramProto(
            # TensorBoard takes these two for the outermost edges.
            min=result.edges[0] if result.edges.size else 0.0,
            max=result.edges[-1] if result.edges.size else 0.0,
            num=float(result.counts.sum()),
            sum=result.sum,
            sum_squares=result.sum_of_squares,
            bucket_limit=result.edges[1:].tolist(),
            bucket=result.counts.tolist(),
        )
        values = [Summary.Value(tag=self._tag(name, "histogram"), histo=proto)]
        # TensorBoard's histograms have no room for these: they are series of their own, from the first one on.
        for key, count in result.not_finite.items():
            if count or f"{name}/{key}" in self._plugins:
                values.append(scalar_value(self._tag(f"{name}/{key}", "scalar"), count))
        return values

    def _tag(self, name: str, plugin: str) -> str:
        while self._plugins.setdefault(name, plugin) != plugin:
            name = f"{name}/{plugin}"
        return name


def scalar_value(tag: str, number: float) -> Summary.Value:
    """Returns a scalar; TensorBoard keeps float32."""
    with np.errstate(over="ignore"):
        return Summary.Value(tag=tag, simple_value=float(np.float32(number)))


def encode_lineage(lineage: Mapping[str, Mapping[str, Any]], start_time: float, step: SummaryStep) -> bytes:
    """Returns an event: a run's lineage as TensorBoard's hyperparameters and metrics; times are seconds since 1970."""
    evaluation = lineage.get("eval_lineage", {})
    # The user's facts come last and win over the others.
    facts = {key: item for kind in LINEAGE_KINDS for key, item in lineage.get(kind, {}).items()}
    metrics = {f"eval_lineage/{name}": number for name, number in evaluation.get("metrics", {}).items()}
    shown = [Metric(tag, display_name=tag.partition("/")[2]) for tag in metrics]
    values = [*hparams_config_pb([], shown, start_time).value]
    values += hparams_pb(hyperparameters(facts), start_time_secs=start_time).value
    values += (scalar_value(tag, number) for tag, number in metrics.items())
    event = Event(step=step.step, wall_time=step.wall_time, summary=Summary(value=values))
    return bytes(event.SerializeToString())


def image_grid(images: NDArray[Any]) -> UInt8[np.ndarray, "height width channels"]:
    """Returns a batch of images (N, H, W, C) as one picture, eight a row, with 3 or 4 channels."""
    # Integers from 0 to 255 stay. Booleans and floats from 0 to 1 are scaled by 255, batches with other values so that
    # their finite range fills 0 to 255; NaN becomes 0.
    pixels = _to_uint8(images)
    count, height, width, channels = pixels.shape
    columns = min(count, _IMAGES_PER_ROW)
    rows = -(-count // columns)
    grid = np.zeros((rows * columns, height, width, channels), np.uint8)
    grid[:count] = pixels
    grid = grid.reshape(rows, columns, height, width, channels).transpose(0, 2, 1, 3, 4)
    grid = grid.reshape(rows * height, columns * width, channels)
    return np.repeat(grid, 3, axis=2) if channels == 1 else np.ascontiguousarray(grid)


def describe(array: NDArray[Any]) -> str:
    """Returns an array's shape, element type and range in words, and its first elements as a table, in Markdown."""
    numbers = array.real if array.dtype.kind == "c" else array
    finite = numbers[np.isfinite(numbers)].astype(np.float64)
    parts = [f"shape {array.shape}, {array.dtype}"]
    if finite.size:
        with np.errstate(over="ignore"):
            parts.append(f"minimum {finite.min():.6g}, maximum {finite.max():.6g}, mean {finite.mean():.6g}")
    if finite.size < numbers.size:
        parts.append(f"{numbers.size - finite.size} not finite")
    head = "; ".join(parts)
    if not array.size:
        return head
    table = array.reshape(-1, array.shape[-1])[:_SHOWN, :_SHOWN]
    lines = ["| | " + " | ".join(str(column) for column in range(table.shape[1])) + " |"]
    lines.append("|---" * (table.shape[1] + 1) + "|")
    lines += [f"| **{index}** | " + " | ".join(f"{item:.6g}" for item in row) + " |" for index, row in enumerate(table)]
    return head + "\n\n" + "\n".join(lines)


@dataclass(frozen=True)
class Histogram:
    """Equal bins over the finite values."""

    edges: Float64[np.ndarray, " edges"]  # ascending, one more than bins; empty when no value is finite
    counts: Int64[np.ndarray, " bins"]  # values per bin; the last bin includes its right edge
    sum: float
    sum_of_squares: float
    not_finite: Mapping[str, int]  # how many values are "nan", "positive_infinity" and "negative_infinity"


def histogram(values: NDArray[Any]) -> Histogram:
    """Returns the histogram of real values of any shape, with bins that grow in number with them, up to 90."""
    flat = values.reshape(-1)
    if flat.dtype.kind == "b":
        flat = flat.astype(np.uint8)
    not_finite = {
        "nan": int(np.isnan(flat).sum()),
        "positive_infinity": int(np.isposinf(flat).sum()),
        "negative_infinity": int(np.isneginf(flat).sum()),
    }
    if any(not_finite.values()):
        flat = flat[np.isfinite(flat)]
    if not flat.size:
        return Histogram(np.zeros(0), np.zeros(0, np.int64), 0.0, 0.0, not_finite)
    # Bins of integers are a whole number wide, centred on whole numbers; equal values get one bin around them.
    edges = _integer_edges(flat) if flat.dtype.kind in "iu" else _float_edges(flat)
    counts = np.zeros(len(edges) - 1, np.int64)
    total = squares = 0.0
    with np.errstate(over="ignore"):
        for start in range(0, flat.size, _HISTOGRAM_BLOCK):
            block = flat[start : start + _HISTOGRAM_BLOCK].astype(np.float64)
            # Searching the edges themselves, so that a count always belongs to the edges that are shown.
            bins = np.searchsorted(edges, block, side="right") - 1
            counts += np.bincount(np.clip(bins, 0, len(counts) - 1), minlength=len(counts))
            total += float(block.sum())
            squares += float(np.square(block).sum())
    return Histogram(edges, counts, total, squares, not_finite)


def bin_count(size: int) -> int:
    """Returns how many bins so many values get: at least as many as fewer values would."""
    if size <= 1:
        return 1
    if size <= 5:
        return 2
    return min(max(3, size // 10 + 1), MOST_BINS)


def _tensor_value(tag: str, array: NDArray[Any]) -> Summary.Value:
    plugin = SummaryMetadata.PluginData(plugin_name=TENSOR_PLUGIN)
    metadata = SummaryMetadata(plugin_data=plugin, data_class=DATA_CLASS_TENSOR)
    if array.size == 0 and array.dtype.kind == "u":
        # TensorBoard's reader knows no empty arrays of long unsigned integers.
        array = array.astype(np.int64)
    elif array.size == 0 and array.dtype == np.float16:
        # Its reader of half precision does what NumPy 2.5 deprecates.
        array = array.astype(np.float32)
    tensor = make_tensor_proto(array)
    if (array.size == 1 and array.dtype.kind == "u") or array.dtype == np.float16:
        # Nor single ones, unless they are written the way longer arrays of other types are.
        del tensor.uint32_val[:], tensor.uint64_val[:], tensor.int_val[:], tensor.half_val[:]
        tensor.tensor_content = array.tobytes()
    return Summary.Value(tag=tag, metadata=metadata, tensor=tensor)


def _image_value(tag: str, pixels: UInt8[np.ndarray, "height width channels"]) -> Summary.Value:
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, format="PNG")
    height, width, channels = pixels.shape
    image = Summary.Image(height=height, width=width, colorspace=channels, encoded_image_string=buffer.getvalue())
    return Summary.Value(tag=tag, image=image)


def _to_uint8(images: NDArray[Any]) -> NDArray[Any]:
    if images.dtype == np.uint8:
        return images
    if images.dtype.kind == "b":
        return images.astype(np.uint8) * np.uint8(255)
    values = images.astype(np.float64)
    finite = values[np.isfinite(values)]
    low, high = (float(finite.min()), float(finite.max())) if finite.size else (0.0, 0.0)
    top = 255.0 if images.dtype.kind in "iu" else 1.0
    if low < 0 or high > top:
        # Halves, because the difference of the largest numbers overflows.
        values, low, top = values / 2 - low / 2, 0.0, high / 2 - low / 2
        if top == 0:
            values, top = np.full_like(values, 0.5), 1.0
    scaled = np.nan_to_num(values / top, nan=0.0, posinf=1.0, neginf=0.0)
    return np.rint(np.clip(scaled, 0.0, 1.0) * 255).astype(np.uint8)


def _integer_edges(values: NDArray[Any]) -> Float64[np.ndarray, " edges"]:
    smallest, largest = int(values.min()), int(values.max())
    distinct = largest - smallest + 1
    # A small range shows every whole number, however few the values are.
    most = max(bin_count(values.size), min(distinct, 10))
    width = -(-distinct // most)
    bins = -(-distinct // width)
    edges = np.unique([float(smallest + width * index) - 0.5 for index in range(bins + 1)])
    # Beyond 2**52, where half a number has no place in float64, an edge may have been rounded past the value itself.
    low, high = min(edges[0], float(smallest)), max(edges[-1], float(largest))
    if len(edges) == 1:
        return np.array([np.nextafter(low, -np.inf), np.nextafter(high, np.inf)])
    edges[0], edges[-1] = low, high
    return edges


def _float_edges(values: NDArray[Any]) -> Float64[np.ndarray, " edges"]:
    smallest, largest = float(values.min()), float(values.max())
    bins = bin_count(values.size)
    # Halves, because the difference of the largest numbers overflows.
    step = (largest / 2 - smallest / 2) / bins * 2
    magnitude = max(abs(smallest), abs(largest))
    # The gap below, because above the largest of all numbers there is none.
    if step > 4 * (magnitude - np.nextafter(magnitude, 0.0)):
        fractions = np.arange(bins + 1) / bins
        edges = smallest * (1 - fractions) + largest * fractions
        edges[0], edges[-1] = smallest, largest
        return edges
    margin = magnitude / 100
    margin = margin if smallest - margin < smallest else 0.5
    limit = np.finfo(np.float64).max
    return np.array([max(smallest - margin, -limit), min(largest + margin, limit)])
