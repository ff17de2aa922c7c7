"""The directions beside a landscape."""

import numpy as np
import pytest
from examples import bowl, train_run

from collectors.weights.safetensors_file import CheckpointFile
from landscape import SummaryLandscape, evaluate
from landscape.planes import custom_plane


def test_evaluate_keeps_the_directions_when_asked(tmp_path):
    directions = [{"weight": np.array([1.0, 0.5, 0.0, 0.0])}, {"weight": np.array([0.0, 0.0, -2.0, 1.0])}]
    plane = custom_plane(bowl()[1], directions)
    axis = np.linspace(0, 1, 3)
    options = {"x": axis, "y": axis, "progress": False, "device_ids": [0]}
    evaluate(plane, bowl, output=tmp_path / "a.h5", **options)
    assert not (tmp_path / "a_directions.safetensors").exists()
    evaluate(plane, bowl, output=tmp_path / "b.h5", save_directions=True, **options)
    file = CheckpointFile(tmp_path / "b_directions.safetensors")
    for axis_number, direction in enumerate(directions):
        np.testing.assert_array_equal(file.read(f"direction_{axis_number}/weight"), direction["weight"])
    with pytest.raises(ValueError, match="save_directions needs output"):
        evaluate(plane, bowl, save_directions=True, **options)


@pytest.mark.slow
def test_a_run_keeps_the_directions_when_asked(tmp_path):
    from examples import dropout

    train_run(tmp_path, dropout)
    landscapes = SummaryLandscape(tmp_path).gen_landscapes_with_multi_process(
        dropout, {"landscape_size": 3}, [0], save_directions=True, progress=False
    )
    for landscape in landscapes:
        file = CheckpointFile(landscape.path.with_name(f"{landscape.path.stem}_directions.safetensors"))
        assert {name.split("/")[1] for name in file.shapes} == {"1.weight", "1.bias", "4.weight", "4.bias"}
