"""Captions say what the file says, and nothing else."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from figure_cases import build, build_line

from landscape import Landscape
from landscape.captions import write_caption
from landscape.file.checks import PointStatus


def text_of(data: Any, *arguments: Any, **look: Any) -> str:
    return write_caption(data, *arguments, **look).text


def test_of_a_path_and_its_principal_plane() -> None:
    data = build(num_samples=1024, samples="random", seed=7)
    text = text_of(data)
    assert text.startswith(
        "Loss of LeNet on the plane of the first two principal components of the path of the weights,"
    )
    assert "which hold 63.2 % +" in text
    assert "21.4 %" in text
    assert "The path (12 checkpoints, epochs 3 to 14) is projected onto the plane" in text
    assert "30 × 20 points." in text
    assert "Each point is measured on 1,024 samples (drawn with seed 7)" in text


def test_of_random_directions() -> None:
    known = {"normalization": "filter", "directions_seed": 3, "perturb_one_dimensional": False}
    text = text_of(build(points=0, decomposition="random", **known))
    assert "along two random directions (normalized by filter (Li et al. 2018);" in text
    assert "; biases and normalization layers stay; seed 3)" in text


def test_of_adaptive_sampling_the_tolerance_is_said() -> None:
    data = build()
    data.status[::2] = PointStatus.INTERPOLATED
    data.attributes["sampling"] = {
        "mode": "adaptive", "finished": True, "tolerance": 0.02, "relative": False, "measured": 300,
        "interpolated": 300, "estimated_error": 0.01, "held_out": 6, "held_out_error": 0.005, "held_out_rms": 0.002,
        "share_beyond_95": 0.1, "largest_gap": 2, "checks": 1, "reached": True,
    }  # fmt: skip
    assert "sampled adaptively within a tolerance of 2 %: 300 of 600 points measured, 300 interpolated" in text_of(data)


def test_the_scale_is_said_where_it_is_not_plain() -> None:
    data = build(10.0 ** np.linspace(-3, 3, 600).reshape(20, 30))
    assert "Colours and heights: log scale" in text_of(data)
    assert "clipped above 5" in text_of(data, clip=5.0)
    assert "Colours" not in text_of(build(), metric="accuracy")


def test_what_the_file_does_not_say_is_not_said() -> None:
    data = build(points=0, decomposition="random")
    data.attributes.pop("network")
    text = text_of(data)
    assert "seed" not in text
    assert "samples" not in text
    assert "None" not in text


def test_the_alternative_text_says_range_place_and_way() -> None:
    data = build()
    assert data.checkpoints is not None
    data.checkpoints.metrics["loss"][:] = np.linspace(2, 0.5, 12)
    alt = write_caption(data, "surface").alt
    assert alt.startswith("A surface seen at an angle of loss of LeNet. The loss ranges from ")
    assert "It is lowest at x = " in alt
    assert alt.endswith("The path goes from 2 at epoch 3 to 0.5 at epoch 14.")


def test_of_a_line_and_of_nothing_measured() -> None:
    line = Landscape(build_line([3.0, 1.0, 2.0]))
    assert "along one random direction (normalized by filter" in line.caption("profile").text
    empty = build()
    empty.metrics["loss"][:] = np.nan
    empty.status[:] = PointStatus.PENDING
    assert "600 are not measured yet" in text_of(empty)
    assert "no finite value" in write_caption(empty).alt


def test_an_unknown_kind_or_metric_is_an_error() -> None:
    with pytest.raises(ValueError, match=r"^kind must be"):
        write_caption(build(), "painting")
    with pytest.raises(KeyError, match="no metric 'lose'"):
        write_caption(build(), metric="lose")
