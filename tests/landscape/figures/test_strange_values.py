import numpy as np
import pytest
from figure_cases import build, draw
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from marked_cases import marked

from landscape.figures import choose_scale, plot_contour, plot_contour_lines, plot_heatmap, plot_surface
from landscape.scales.choosing import SCALES

DRAWINGS = [plot_contour, plot_surface]


def surfaces():
    one = np.full((3, 5), np.nan)
    one[1, 2] = 4.0
    outlier = 1 + 0.01 * np.arange(400.0).reshape(20, 20) / 400
    outlier[0, 0] = 1e30
    return {
        "flat": np.full((3, 5), 1.25),
        "zero": np.zeros((3, 5)),
        "nothing": np.full((3, 5), np.nan),
        "one": one,
        "infinite": np.full((3, 5), np.inf),
        "one row": np.arange(1.0, 6)[None],
        "one column": np.arange(1.0, 6)[:, None],
        "one point": np.ones((1, 1)),
        "extremes": np.array([[-1e308, 1e308], [0, 5e-324]]),
        "positive extremes": np.array([[5e-324, 1e308], [1, 2]]),
        "outlier": outlier,
        "rounding": np.nextafter(np.ones((3, 5)), np.arange(15).reshape(3, 5) % 2),
        "zeros and more": np.eye(5) * 1e4,
        "negative": -np.arange(15.0).reshape(3, 5),
        "both": np.sinh(np.arange(-30.0, 30)).reshape(6, 10),
        "checkered": np.where(np.indices((6, 6)).sum(0) % 2, np.nan, 2.0 + np.arange(36).reshape(6, 6)),
    }


class TestStrangeSurfaces:
    @pytest.mark.slow
    @pytest.mark.parametrize("name", surfaces())
    @pytest.mark.parametrize("plot", [*DRAWINGS, plot_contour_lines, plot_heatmap])
    def test_is_drawn(self, plot, name):
        loss = surfaces()[name]
        data = build(loss)
        draw(plot(data))
        np.testing.assert_array_equal(data.metrics["loss"], loss)

    @pytest.mark.parametrize("scale", ["linear", "symlog"])
    @pytest.mark.parametrize(
        "name", marked(["both", "flat", "extremes", "zeros and more", "negative", "checkered"], pytest.mark.slow)
    )
    def test_any_scale(self, name, scale):
        draw(plot_contour(build(surfaces()[name], points=0), scale=scale))

    @pytest.mark.parametrize(
        "clip", [None, *(pytest.param(ends, marks=pytest.mark.slow) for ends in ((1e-300, 1e100), (1.5, 1e308)))]
    )
    def test_a_bar_of_all_positive_numbers_ends_in_the_colour_of_what_is_beyond(self, clip):
        """Its pointed end stands for a value as far beyond the bar as the bar is long, which no number is."""
        for plot in (plot_contour_lines, plot_heatmap):
            ax = plot(build(surfaces()["positive extremes"]), scale="log", clip=clip, trajectory=False)
            draw(ax)
            (bar,) = [axes for axes in ax.figure.axes if axes is not ax]
            assert (bar.get_yticks() > 0).all()
            norm = choose_scale(surfaces()["positive extremes"], "log", clip=clip).norm()
            beyond = norm.inverse(np.array([-1.0, 0.0, 1.0, 2.0]))
            assert np.isfinite(beyond).all()
            assert (np.diff(beyond) > 0).all()
            np.testing.assert_allclose(norm(beyond[1:3]), [0, 1], atol=1e-9)

    @pytest.mark.parametrize(
        ("name", "words"), [("nothing", "no finite value of loss"), ("one", "flat: loss is 4 at the only finite point")]
    )
    def test_the_picture_says_what_is_odd(self, name, words):
        assert words in [text.get_text() for text in plot_contour(build(surfaces()[name])).texts]

    @settings(max_examples=150)
    @given(values=arrays.arrays(np.float64, st.integers(1, 30), elements=st.floats()), kind=st.sampled_from(SCALES))
    def test_any_values_have_a_scale(self, values, kind):
        if kind == "log" and not (values[np.isfinite(values)] > 0).any():
            return
        scale = choose_scale(values, kind)
        if scale.flat:
            return
        bands = scale.bands()
        assert np.isfinite(bands).all()
        assert (np.diff(bands) > 0).all()
        assert (bands[0], bands[-1]) == (scale.low, scale.high)
        assert (np.diff(scale.levels) > 0).all()
        assert ((scale.levels >= scale.low) & (scale.levels <= scale.high)).all()
        assert len(set(scale.texts())) == len(scale.levels)
        heights = scale.forward(scale.shown(values))
        assert (np.isfinite(heights) == np.isfinite(values)).all()

    @pytest.mark.parametrize("gap", marked([np.nan, np.inf, -np.inf], pytest.mark.slow, after=1))
    def test_random_surfaces_of_every_magnitude(self, gap):
        random = np.random.default_rng(2)
        loss = random.choice([1, 1, -1, 0], (5, 7)) * 10.0 ** random.uniform(-300, 300, (5, 7))
        loss[random.random((5, 7)) < 0.2] = gap
        for plot in DRAWINGS:
            draw(plot(build(loss, points=3)))
