"""A landscape among a run's summary records, as TensorBoard reads it."""

import io

import numpy as np
import pytest
from event_reading import events
from examples import bowl
from PIL import Image

from collectors import SummaryRecord
from landscape import evaluate
from landscape.planes import custom_plane


@pytest.mark.slow
def test_a_landscape_is_recorded_as_picture_and_numbers(tmp_path):
    directions = [{"weight": np.array([1.0, 0.5, 0.0, 0.0])}, {"weight": np.array([0.0, 0.0, -2.0, 1.0])}]
    plane = custom_plane(bowl()[1], directions)
    landscape = evaluate(plane, bowl, x=np.linspace(-1, 1, 5), y=np.linspace(0, 1, 3), progress=False, device_ids=[0])
    values = landscape.summary_values()
    assert values["image"].dtype == np.uint8
    assert values["image"].shape[:2] == (1, 3)
    assert values["image"].std() > 20
    np.testing.assert_array_equal(values["tensor"], landscape.loss)
    with SummaryRecord(tmp_path, raise_exception=True) as record:
        record.add_value("landscape", "result", landscape)
        record.record(1)
    tags = {value.tag: value for event in events(tmp_path) for value in event.summary.value}
    picture = next(value for tag, value in tags.items() if tag.startswith("result/image"))
    encoded = picture.image.encoded_image_string or picture.tensor.string_val[-1]
    with Image.open(io.BytesIO(encoded)) as image:
        assert image.size == values["image"].shape[:1:-1]
    assert any(tag.startswith("result/tensor") for tag in tags)
