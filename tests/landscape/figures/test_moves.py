"""Orbits and walks: what moves, what stays, and the films as they are read back."""

import itertools
import subprocess

import numpy as np
import pytest
from figure_cases import build, loss_at
from PIL import Image

from landscape.figures import orbit_frames, save_animation, walk_frames
from landscape.figures.films.film import find_ffmpeg
from landscape.figures.films.orbit import turns
from landscape.landscape import Landscape


def walk(rows=10):
    data = build(points=4, rows=rows, columns=12)
    path = data.checkpoints
    path.x[:], path.y[:] = [-1.5, -0.5, 1.0, 2.0], [-0.8, 1.0, 0.0, 0.9]
    path.projected["loss"][:] = loss_at(path.x, path.y)
    return Landscape(data)


def film(path):
    """Returns the number of frames, the height and the width of an MP4, decoded by ffmpeg."""
    command = [find_ffmpeg(), "-loglevel", "error", "-i", str(path), "-f", "image2pipe", "-c:v", "ppm", "-"]
    raw = subprocess.run(command, check=True, capture_output=True).stdout
    _, size, _ = raw.split(b"\n", 3)[:3]
    width, height = map(int, size.split())
    return raw.count(b"P6\n%d %d\n255\n" % (width, height)), height, width


class TestOrbit:
    @pytest.mark.slow
    def test_only_the_surface_turns_and_whole_turns_are_closed(self):
        frames = list(orbit_frames(walk(), seconds=1, rate=4, dpi=50, theme="light"))
        assert [frame.shape for frame in frames] == [(270, 480, 3)] * 4
        assert all((one != other).any() for one, other in itertools.pairwise(frames))
        # The legend below stays.
        assert all((frame[-12:] == frames[0][-12:]).all() for frame in frames)
        assert turns(360, 4) == [0, 90, 180, 270]
        assert turns(-90, 4) == [0, -30, -60, -90]

    @pytest.mark.slow
    def test_it_begins_at_the_camera_and_is_the_same_each_time(self):
        options = {"seconds": 0.5, "rate": 4, "dpi": 40, "theme": "light"}
        frames = list(orbit_frames(walk(), turn=-90, camera=(30, 35), **options))
        again = list(orbit_frames(walk(), turn=-90, camera=(30, 35), **options))
        np.testing.assert_array_equal(frames, again)
        other = next(orbit_frames(walk(), turn=-90, camera=(60, 35), **options))
        assert (other != frames[0]).any()

    def test_it_needs_no_path(self):
        landscape = Landscape(build(points=0, rows=6, columns=6))
        assert len(list(orbit_frames(landscape, seconds=0.2, rate=10, dpi=30))) == 2


class TestFilms:
    @pytest.mark.slow
    @pytest.mark.parametrize(("move", "held"), [("walk", 5), ("orbit", 0)])
    def test_an_mp4_has_1920_x_1080_pixels_and_every_frame(self, move, held, tmp_path):
        path = save_animation(walk(), tmp_path / "a.mp4", move=move, seconds=0.8, rate=5)
        assert film(path) == (4 + held, 1080, 1920)

    @pytest.mark.slow
    def test_a_gif_is_smaller_and_an_orbit_runs_in_a_circle(self, tmp_path):
        path = save_animation(walk(), tmp_path / "a.gif", move="orbit", seconds=0.3, rate=10)
        with Image.open(path) as found:
            assert found.size == (768, 432)
            assert found.n_frames == 3
            found.seek(2)
            assert found.info["duration"] == 100

    def test_a_walk_turns_only_if_it_is_asked_to(self):
        options = {"seconds": 0.4, "rate": 10, "dpi": 40, "theme": "light"}
        still = list(walk_frames(walk(), "surface", **options))
        turned = list(walk_frames(walk(), "surface", turn=60, **options))
        assert (still[0] != still[-1]).any(axis=2).mean() < 0.1
        assert (turned[0] != turned[-1]).any(axis=2).mean() > 0.1

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            ({"move": "spin"}, "move must be one of 'walk', 'orbit', but got 'spin'"),
            ({"move": "orbit", "kind": "contour"}, 'kind must be left out for move="orbit"'),
            ({"turn": 90.0}, 'turn must be 0 for kind="contour"'),
        ],
    )
    def test_wrong_arguments(self, arguments, message, tmp_path):
        with pytest.raises(ValueError, match=message):
            save_animation(walk(), tmp_path / "a.gif", **arguments)
        assert list(tmp_path.iterdir()) == []
