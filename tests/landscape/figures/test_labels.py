import itertools

import numpy as np
import pytest
from figure_cases import build, draw
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.cbook import is_math_text

from landscape.drawing.placement import most_telling, overlaps, place_labels
from landscape.drawing.texts import in_even_lines, in_phrases, plain, title
from landscape.figures import plot_contour, plot_contour_lines, plot_heatmap, plot_surface

NAMES = ["$", r"a_$b_{c$", r"$\frac$", "$$", r"\$x$", "a\nb\0c", "\ud800", "%s {} _x", "n" * 500]


RANDOM = "distance along random direction"


class TestLabelsOfAxes:
    @pytest.mark.parametrize(
        ("attributes", "look", "across", "up"),
        [
            ({}, {}, "distance along the first {}63.2 %)", "distance along the second {}21.4 %)"),
            ({}, {"aspect": "fill"}, "first {}63.2 %)", "second {}21.4 %)"),
            ({"normalization": "filter"}, {}, f"{RANDOM} 1 (filter-normalized)", f"{RANDOM} 2 (filter-normalized)"),
            ({"normalization": "none"}, {}, f"{RANDOM} 1", f"{RANDOM} 2"),
            ({"decomposition": "points"}, {}, "distance towards point 1", "distance towards point 2"),
            ({"decomposition": "custom"}, {}, "distance along direction 1", "distance along direction 2"),
        ],
    )
    def test_of_each_kind_of_direction(self, attributes, look, across, up):
        kind = {"decomposition": "random"} if "normalization" in attributes else {}
        ax = plot_contour(build(**kind, **attributes), **look)
        expected = [text.format("principal direction (explained variance ") for text in (across, up)]
        assert [label.replace("\n", " ") for label in (ax.get_xlabel(), ax.get_ylabel())] == expected

    def test_titles(self):
        stretched = plot_contour(build(), aspect="fill").get_title()
        assert stretched == "LeNet, epochs 3 to 14\naxes stretched × 2.05 along y"
        assert title(build(points=0, intervals=[[7]], unit="step")) == "LeNet, step 7"
        assert plot_contour(build(title="mine")).get_title() == "mine"
        unit = "optimizer_step_after_warm_up"
        assert title(build(unit=unit)) == f"LeNet, {unit}s 3 to 14"
        assert title(build(points=0, network=None)) == "loss landscape"

    # All pictures write names by the same rules: where one does not, these two names show it.
    @pytest.mark.slow
    @pytest.mark.parametrize(
        ("plot", "name"),
        [
            *itertools.product([plot_contour, plot_surface], NAMES),
            *itertools.product([plot_contour_lines, plot_heatmap], [r"a_$b_{c$", "a\nb\0c"]),
        ],
    )
    def test_any_name_can_be_drawn(self, plot, name):
        data = build(rows=4, columns=5, network=name, unit=name, decomposition=name, normalization=name)
        metric = name if name.isprintable() else "loss"
        for metrics in (data.metrics, data.checkpoints.projected, data.checkpoints.metrics):
            metrics[metric] = metrics["loss"] + 1
        data.origin.metrics[metric] = 1.0
        draw(plot(data, metric=metric))

    def test_text_is_drawn_as_it_is(self):
        for text in ("$a$", r"\$a$b$", r"$$\frac", "a$b"):
            assert not is_math_text(plain(text))
        assert plain("ab_{c}") == "ab_{c}"
        assert plain("x" * 100) == "x" * 45 + "..."


class TestPlacement:
    def test_labels_keep_clear_of_everything(self):
        random = np.random.default_rng(0)
        points, sizes = random.uniform(0, 300, (40, 2)), np.full((40, 2), 12.0)
        frame, taken = np.array([0.0, 0, 300, 300]), np.array([[100.0, 100, 200, 200]])
        placed = place_labels(points, sizes, range(40), frame, taken, gap=4.0, clear=points)
        assert placed
        boxes = np.array([[x - 6, y - 6, x + 6, y + 6] for x, y in placed.values()])
        assert (boxes >= 0).all()
        assert (boxes <= 300).all()
        for index, box in enumerate(boxes):
            assert not overlaps(box, taken).any()
            assert not overlaps(box, np.delete(boxes, index, axis=0)).any()
            assert not ((points > box[:2]) & (points < box[2:])).all(axis=1).any()

    @given(count=st.integers(0, 200))
    def test_the_ends_come_first_and_none_is_forgotten(self, count):
        order = most_telling(count)
        assert sorted(order) == list(range(count))
        assert order[:2] == ([0, count - 1] if count > 1 else list(range(count)))


class TestLines:
    def test_lines_are_about_equally_long_and_no_word_stands_alone(self):
        text = "first principal direction, explained variance 63.2 %, almost nothing"
        assert in_even_lines(text, 60) == ["first principal direction, explained", "variance 63.2 %, almost nothing"]

    def test_there_are_no_more_lines_than_needed_and_all_words(self):
        text = "one averyveryverylongword and some shorter words after it"
        for letters in range(1, 60):
            lines = in_even_lines(text, letters)
            assert " ".join(lines) == text
            assert all(len(line) <= letters or " " not in line for line in lines)
        assert in_even_lines(text, 57) == [text]

    @pytest.mark.parametrize(
        ("text", "letters"),
        [
            ("own loss differs at 3 of 12 networks,\nmost at epoch 7 (own loss 0.312, drawn 0.5:\non other sets)", 48),
            ("a,\nmuch longer phrase\nthan there is room", 24),
        ],
    )
    def test_a_note_breaks_between_its_phrases_and_within_one_that_is_too_long_evenly(self, text, letters):
        assert in_phrases(text.replace("\n", " "), letters) == text.split("\n")
