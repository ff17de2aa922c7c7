"""What is said of minima by ``landscape info``, as text and as JSON, and on the page."""

import json
import math

import numpy as np
import pytest
from command_line import invoke
from figure_cases import build, build_line, build_unfinished

from landscape.facts import page_facts, summary_text
from landscape.grid.landscape_file import write_landscape
from landscape.interactive.content import landscape_content
from landscape.record.checks import PointStatus
from landscape.summary_json import summary_json
from landscape.topology import words
from landscape.topology.topology import find_topology
from landscape.topology.words import letter, minima_text, topology_json

VALUES = [0.5, 5, 0.59, 1, 2, 9, 9.5]


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    path = tmp_path_factory.mktemp("info") / "line.h5"
    write_landscape(path, build_line(VALUES))
    return path


class TestText:
    def test_one_minimum_and_several_with_the_deepest_barrier(self):
        assert minima_text(build()) == "1 minimum; of the grid on this plane, not of the network"
        text = "2 minima, deepest barrier 4.41; of the grid on this line, not of the network; 1 at the edge of the grid"
        assert minima_text(build_line(VALUES)) == text

    def test_what_is_left_out(self):
        data = build_line([0.5, 5, 0.59, 1, 0.9, 9, math.nan, 3, 4])
        data.metrics["loss_stderr"][:] = 0.2
        assert minima_text(data) == (
            "3 minima, deepest barrier 4.41; of the grid on this line, not of the network; 1 at the edge of the grid "
            "and 1 beside points without a value; 1 more is not deeper than twice the standard error; 2 parts without "
            "a path between them; 1 point without a value (1 not finite) left out"
        )

    def test_which_error_hides_the_others(self):
        data = build_line([0.5, 5, 0.59, 1, 0.9, 9])
        data.status[3] = PointStatus.INTERPOLATED
        data.metrics["loss_error"] = np.where(data.status == PointStatus.INTERPOLATED, 0.3, 0)
        del data.metrics["loss_stderr"]
        assert minima_text(data).endswith("1 more is not deeper than twice the interpolation error")
        noise = build(1 + 1e-8 * np.random.default_rng(0).normal(size=(20, 30)))
        assert minima_text(noise).endswith("more are not deeper than twice the rounding")

    def test_nothing_while_points_are_pending_or_without_a_value(self, monkeypatch):
        assert minima_text(build_unfinished()) is None
        assert topology_json(build_unfinished()) is None
        assert minima_text(build_line([math.nan, math.nan])) is None
        monkeypatch.setattr(words, "MOST_POINTS", 6)
        assert minima_text(build_line(VALUES)) is None

    def test_a_flat_grid_has_no_minimum(self):
        flat = "none: loss is flat, the same at all points of the grid that have a value"
        assert minima_text(build(np.full((3, 5), 3.0))) == flat
        left_out = "2 points without a value (2 not finite) left out"
        assert minima_text(build_line([math.nan, 3, 3, math.nan])) == f"{flat}; {left_out}"
        assert topology_json(build_line([3, 3]))["minima"] == []
        assert topology_json(build_line([3, 3]))["flat"] is True
        assert topology_json(build_line([3, 4]))["flat"] is False

    def test_letters(self):
        assert [letter(place) for place in (0, 1, 25, 26)] == ["A", "B", "Z", ""]


class TestInfo:
    def test_says_it(self, file):
        rows = invoke("info", file).output.splitlines()
        assert any(row.startswith("minima") and "2 minima, deepest barrier 4.41" in row for row in rows)

    def test_says_it_for_programs(self, file):
        found = json.loads(invoke("info", "--json", file).output)["topology"]
        expected = find_topology(build_line(VALUES))
        assert [row["value"] for row in found["minima"]] == [0.5, 0.59]
        assert [row["persistence"] for row in found["minima"]] == [None, pytest.approx(4.41)]
        assert found["saddles"] == [{"x": expected.saddles[0].x, "y": None, "value": 5, "joins": [1, 0]}]
        assert found["merge_tree"] == [[1, 0]]
        assert (found["shallow"], found["parts"], found["excluded"]) == (0, 1, {})

    def test_says_it_on_the_page(self):
        data = build_line(VALUES)
        row = ["minima", minima_text(data)]
        assert row in page_facts(data)
        assert row in landscape_content(data, "a")["facts"]

    def test_says_nothing_of_an_unfinished_one(self):
        assert "minima" not in summary_text(build_unfinished())
        assert summary_json(build_unfinished())["topology"] is None
