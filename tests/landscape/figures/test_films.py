"""Walks and orbits: what moves, what stays, and the films as they are read back."""

import itertools
import subprocess

import matplotlib
import numpy as np
import pytest
from figure_cases import build, build_line, loss_at
from long_paths import build_path
from matplotlib import colormaps
from matplotlib.colors import to_rgb
from packaging.version import Version
from PIL import Image
from scipy.ndimage import uniform_filter
from who_is_there import with_networks, with_runs

from collectors.errors import LandscapeError
from landscape.drawing.path import RUN_COLORS
from landscape.figures import orbit_frames, save_animation, walk_frames
from landscape.figures.films import frames
from landscape.figures.films.film import find_ffmpeg
from landscape.figures.films.frames import turns
from landscape.landscape import Landscape
from landscape.record.checks import PointStatus

BALL = np.array([0xFF, 0x4D, 0x6D])


def where_is_the_ball(frame, right=0):
    """Its middle in pixels from the left and from the bottom, in the left or in the right half."""
    half = np.split(frame, 2, axis=1)[right].astype(int)
    rows, columns = np.nonzero(np.abs(half - BALL).sum(axis=2) < 12)
    assert len(rows) > 10
    return float(columns.mean()), float(len(frame) - rows.mean())


def where_is_it_thickest(frame, color):
    """The middle of the largest spot of a colour in the left half, which is thicker than the lines of that colour."""
    half = frame[:, : frame.shape[1] // 2].astype(int)
    share = uniform_filter((np.abs(half - color).sum(axis=2) < 40).astype(float), size=9)
    rows, columns = np.nonzero(share >= share.max() - 1e-9)
    return float(columns.mean()), float(len(frame) - rows.mean())


def check_way(seen, moments, numbers, path, rows, pixels):
    """Checks that what is seen in pixels moves as the checkpoints do, whose numbers are moments too."""
    for axis, values in enumerate((path.x[rows], path.y[rows])):
        expected = np.interp(moments, numbers, values)
        slope, offset = np.polyfit(expected, np.array(seen)[:, axis], 1)
        assert slope > 0
        np.testing.assert_allclose(np.array(seen)[:, axis], slope * expected + offset, atol=pixels)


def walk(**changes):
    data = build(points=4, rows=12, columns=16)
    path = data.checkpoints
    path.x[:], path.y[:] = [-1.5, -0.5, 1.0, 2.0], [-0.8, 1.0, 0.0, 0.9]
    path.metrics["loss"][:] = [5, 2, 1, 0.1]
    path.projected["loss"][:] = [4, 3, 2, 0.5]
    for name, value in changes.items():
        setattr(data, name, value)
    return data


def on_the_surface():
    """Returns a walk whose feet lie on the surface: behind it or below it the ball would be faint."""
    data = walk()
    data.checkpoints.projected["loss"][:] = loss_at(data.checkpoints.x, data.checkpoints.y)
    return Landscape(data)


@pytest.fixture
def stages(monkeypatch):
    """The stages of films that are drawn, in order."""
    found, begin = [], frames._Stage.__init__
    monkeypatch.setattr(frames._Stage, "__init__", lambda stage, *where: (found.append(stage), begin(stage, *where))[1])
    return found


def film(path):
    """Returns the frames of an MP4, shape (frames, height, width, 3), decoded by ffmpeg."""
    command = [find_ffmpeg(), "-loglevel", "error", "-i", str(path), "-f", "image2pipe", "-c:v", "ppm", "-"]
    raw = subprocess.run(command, check=True, capture_output=True).stdout
    head = b"".join(line + b"\n" for line in raw.split(b"\n", 3)[:3])
    width, height = map(int, head.split()[1:3])
    frames = np.frombuffer(raw, np.uint8).reshape(-1, len(head) + 3 * height * width)
    return frames[:, len(head) :].reshape(-1, height, width, 3)


class TestFrames:
    def test_the_ball_walks_along_the_path_at_constant_speed(self):
        data = walk()
        frames = list(walk_frames(data, seconds=1, rate=13, dpi=60))
        assert len(frames) == 13
        assert frames[0].shape == (324, 576, 3)
        seen = [where_is_the_ball(frame) for frame in frames]
        check_way(seen, np.linspace(0, 3, 13), np.arange(4), data.checkpoints, slice(None), 1.0)

    def test_two_runs_walk_at_once_and_the_shorter_one_waits(self):
        data = with_runs()
        path = data.checkpoints
        frames = list(walk_frames(data, seconds=1, rate=8, dpi=100))
        # 5 and 8 checkpoints, each five epochs apart.
        moments = np.linspace(0, 35, 8)
        for rows, color in ((slice(0, 5), (0xE5, 0x38, 0x3B)), (slice(5, 13), (0xFF, 0x9F, 0x1C))):
            # In the first frame both are at one place, where the other one covers it.
            seen = [where_is_it_thickest(frame, color) for frame in frames[1:]]
            check_way(seen, moments[1:], path.number[rows], path, rows, 2.0)

    @pytest.mark.parametrize("checkpoints", [5, 20])
    def test_runs_have_the_colours_of_still_pictures(self, checkpoints):
        landscape = Landscape(build_path("spiral", checkpoints, runs=2))
        last = list(walk_frames(landscape, seconds=0.1, rate=20, dpi=80))[-1].astype(int)
        entries = landscape.plot("contour").figure.legends[0].legend_handles
        drawn = {str(entry.get_label()).split(" (")[0]: entry for entry in entries}
        for run in ("run 1", "run 2"):
            color = 255 * np.array(to_rgb(drawn[run].get_color()))
            assert (np.abs(last - color).max(axis=2) <= 3).sum() > 20

    def test_runs_keep_their_colours_and_names_beside_one_of_a_single_checkpoint(self, stages):
        data = with_runs()
        found = data.checkpoints
        data.checkpoints = found.part(np.r_[0, 5 : len(found.number)])
        list(walk_frames(data, seconds=0.1, rate=20, dpi=40))
        (walker,) = stages[0].walkers
        assert walker.color == "white"
        third = build_path("spiral", 5, runs=3)
        third.checkpoints = third.checkpoints.part(np.r_[0, 5:15])
        # Versions of matplotlib before 3.10 leave such names out of every legend, and warn.
        mark = "_" if Version(matplotlib.__version__) >= Version("3.10") else "-"
        third.checkpoints.runs = ("run 1", f"{mark}run 2", f"{mark}foot")
        list(walk_frames(third, seconds=0.1, rate=20, dpi=40))
        assert [walker.color for walker in stages[1].walkers] == list(RUN_COLORS[:2])
        legend = [text.get_text() for text in stages[1].curve.get_legend().get_texts()]
        assert legend == [f"{mark}run 2", f"{mark}foot", "at its foot on the plane"]

    def test_a_loss_of_0_is_drawn_where_the_label_says(self, stages):
        data = walk()
        data.checkpoints.metrics["loss"][-1], data.checkpoints.projected["loss"][-1] = 0.0, 0.05
        list(walk_frames(data, seconds=0.1, rate=20, dpi=40))
        (stage,) = stages
        assert stage.curve.get_ylabel() == "loss (log scale, 0 drawn as 0.05)"
        (_, line, dot), _ = stage.curves
        assert line.get_ydata().tolist() == [5, 2, 1, 0.05]
        assert dot.get_ydata() == [0.05]

    def test_a_wide_plane_is_no_thin_strip(self, stages):
        data = walk()
        data.directions.norms[:] = [2.0, 1.0]
        list(walk_frames(data, seconds=0.1, rate=20, dpi=40))
        (stage,) = stages
        plane, curve = (ax.get_window_extent() for ax in (stage.sheet.ax, stage.curve))
        assert plane.y0 > curve.y1
        assert plane.width > 0.6 * stage.figure.bbox.width

    def test_what_does_not_move_stays_as_it_is(self):
        first, *_, last = walk_frames(walk(), seconds=1, rate=4, dpi=60)
        assert 0.001 < (first != last).any(axis=2).mean() < 0.2

    @pytest.mark.parametrize("kind", ["lines", "heatmap", "surface"])
    @pytest.mark.parametrize("theme", ["light", "dark"])
    def test_over_every_kind_of_ground(self, kind, theme):
        data = walk()
        # Behind the surface or below it the ball would be faint.
        data.checkpoints.projected["loss"][:] = 1.05 * loss_at(data.checkpoints.x, data.checkpoints.y)
        frames = list(walk_frames(data, kind, seconds=0.3, rate=10, dpi=50, theme=theme))
        assert len({where_is_the_ball(frame) for frame in frames}) == 3
        assert bool(frames[0][0, 0].mean() < 50) is (theme == "dark")

    def test_unfinished_and_empty_planes(self):
        data = walk()
        data.checkpoints.metrics["loss"][2:] = np.nan
        data.checkpoints.projected["loss"][1:] = np.nan
        data.status[6:], data.metrics["loss"][6:] = PointStatus.PENDING, np.nan
        for kind in ("contour", "surface"):
            assert len(list(walk_frames(data, kind, seconds=0.2, rate=10, dpi=40))) == 2
        data.metrics["loss"][:] = np.nan
        data.checkpoints.metrics["loss"][:] = data.checkpoints.projected["loss"][:] = np.nan
        assert len(list(walk_frames(data, seconds=0.2, rate=10, dpi=40))) == 2

    @pytest.mark.parametrize(
        ("data", "arguments", "error", "message"),
        [
            (walk(checkpoints=None), {}, ValueError, "needs a run's path of at least two checkpoints"),
            (build(points=1), {}, ValueError, "needs a run's path of at least two checkpoints"),
            (with_networks(), {}, ValueError, "needs a run's path of at least two checkpoints"),
            (build_line([1, 2]), {}, ValueError, "needs a plane, but the landscape is a line"),
            (walk(), {"kind": "profile"}, ValueError, "kind must be one of 'contour', 'lines'"),
            (walk(), {"seconds": 0}, ValueError, "seconds must be a finite number of at least"),
            (walk(), {"rate": 2.5}, TypeError, "rate must be an int"),
            (walk(), {"dpi": 3}, ValueError, "dpi must be an int of at least 20"),
            (walk(), {"metric": "speed"}, KeyError, "no metric 'speed'"),
            (walk(), {"theme": "red"}, ValueError, "theme must be one of"),
            (walk(), {"trajectory": False}, ValueError, "trajectory=False must be left out for an animation"),
            (walk(), {"width": 1}, TypeError, "walk_frames has no argument 'width'"),
        ],
    )
    def test_wrong_arguments(self, data, arguments, error, message):
        with pytest.raises(error, match=message):
            next(walk_frames(data, **arguments))


class TestSeveral:
    @pytest.mark.parametrize(("unit", "first"), [("epoch", 0), ("step", 3)])
    def test_files_walk_side_by_side_on_one_scale_and_one_clock(self, unit, first, tmp_path):
        pair = walk(), build_path("spiral", 7, unit=unit)
        pair[1].metrics["loss"][:] *= 100
        files = [Landscape.load(Landscape(data).save(tmp_path / f"{index}.h5")) for index, data in enumerate(pair)]
        frames = list(walk_frames(files, "heatmap", seconds=1, rate=13, dpi=80))
        # Epochs 3 to 6 beside 0 to 6: it waits for its first. Beside steps, each goes its own way in the same time.
        for right, (data, begins) in enumerate(zip(pair, (first, 0), strict=True)):
            found = data.checkpoints
            seen = [where_is_the_ball(frame, right) for frame in frames]
            check_way(seen, np.linspace(begins, 6, 13), found.number, found, slice(None), 1.0)
        # The brightest colour is that of the highest value of both.
        highest = 255 * np.array(colormaps["viridis"](1.0)[:3])
        assert not (np.abs(np.split(frames[0], 2, axis=1)[0] - highest).max(axis=2) < 3).any()
        with Image.open(save_animation(files, tmp_path / "a.gif", seconds=0.2, rate=10, dpi=40)) as film:
            assert (film.n_frames, film.size) == (2, (384, 216))

    @pytest.mark.parametrize(
        ("other", "arguments", "message"),
        [
            (walk(), {"move": "orbit"}, 'move must be "walk" for several landscapes, but got "orbit"'),
            (walk(), {"kind": "surface", "turn": 90.0}, "turn must be 0 for several landscapes"),
            (build_line([1, 2]), {}, "landscapes must be all planes or all lines"),
            (with_networks(), {}, r"needs a run's path of at least two checkpoints, but landscape\[1\] has none"),
        ],
    )
    def test_what_several_cannot(self, other, arguments, message, tmp_path):
        with pytest.raises(ValueError, match=message):
            save_animation([walk(), other], tmp_path / "a.gif", **arguments)
        assert list(tmp_path.iterdir()) == []

    def test_surfaces_stand_side_by_side(self):
        first, *_, last = walk_frames([on_the_surface()] * 2, "surface", seconds=0.4, rate=10, dpi=50)
        assert all((np.split(first, 2, axis=1)[side] != np.split(last, 2, axis=1)[side]).any() for side in (0, 1))


class TestOrbit:
    @pytest.mark.slow
    def test_only_the_surface_turns_and_whole_turns_are_closed(self):
        frames = list(orbit_frames(on_the_surface(), seconds=1, rate=4, dpi=50, theme="light"))
        assert [frame.shape for frame in frames] == [(270, 480, 3)] * 4
        assert all((one != other).any() for one, other in itertools.pairwise(frames))
        # The legend below stays.
        assert all((frame[-12:] == frames[0][-12:]).all() for frame in frames)
        assert turns(360, 4) == [0, 90, 180, 270]
        assert turns(-90, 4) == [0, -30, -60, -90]

    @pytest.mark.slow
    def test_it_begins_at_the_camera_and_is_the_same_each_time(self):
        options = {"seconds": 0.5, "rate": 4, "dpi": 40, "theme": "light"}
        frames, again, other = (
            list(orbit_frames(on_the_surface(), turn=-90, camera=(azimuth, 35), **options)) for azimuth in (30, 30, 60)
        )
        np.testing.assert_array_equal(frames, again)
        assert (other[0] != frames[0]).any()

    def test_it_needs_no_path(self):
        landscape = Landscape(build(points=0, rows=6, columns=6))
        assert len(list(orbit_frames(landscape, seconds=0.2, rate=10, dpi=30))) == 2


class TestFiles:
    @pytest.mark.slow
    def test_gif(self, tmp_path):
        landscape = Landscape(walk())
        path = save_animation(landscape, tmp_path / "a.gif", seconds=0.6, rate=10, dpi=50)
        frames = list(walk_frames(landscape, seconds=0.6, rate=10, dpi=50))
        with Image.open(path) as film:
            assert film.n_frames == 6
            assert film.info["loop"] == 0
            for index, (frame, duration) in enumerate(zip(frames, [100] * 5 + [1000], strict=True)):
                film.seek(index)
                assert film.info["duration"] == duration
                shown = np.asarray(film.convert("RGB"), int)
                assert shown.shape == frame.shape
                assert np.abs(shown - frame).mean() < 6
        again = save_animation(landscape, tmp_path / "b.gif", seconds=0.6, rate=10, dpi=50)
        assert again.read_bytes() == path.read_bytes()

    @pytest.mark.parametrize("rate", [24, 30, 50])
    def test_a_gif_takes_as_long_as_was_asked(self, rate, tmp_path):
        path = save_animation(walk(), tmp_path / "a.gif", seconds=1, rate=rate, dpi=30)
        with Image.open(path) as film:
            durations = []
            for index in range(film.n_frames):
                film.seek(index)
                durations.append(film.info["duration"])
        # The last picture stays for a second.
        assert durations[-1] == 1000
        assert sum(durations[:-1]) == pytest.approx(1000 * (rate - 1) / rate, abs=5)

    @pytest.mark.slow
    def test_mp4_of_an_odd_size(self, tmp_path):
        path = save_animation(walk(), tmp_path / "a.MP4", seconds=0.5, rate=10, size=(9.62, 5.42), dpi=50)
        shown = film(path)
        assert shown.shape == (5 + 10, 272, 482, 3)
        expected = list(walk_frames(walk(), seconds=0.5, rate=10, size=(9.62, 5.42), dpi=50))
        assert expected[0].shape == (271, 481, 3)
        assert np.abs(shown[0, :271, :481].astype(int) - expected[0]).mean() < 6
        assert np.abs(shown[-1, :271, :481].astype(int) - expected[-1]).mean() < 6

    def test_without_ffmpeg_the_way_out_is_named(self, tmp_path, monkeypatch):
        monkeypatch.setenv("PATH", str(tmp_path))
        monkeypatch.setitem(__import__("sys").modules, "imageio_ffmpeg", None)
        with pytest.raises(LandscapeError, match=r"needs ffmpeg, which is not on the PATH; .* or write a \.gif"):
            save_animation(walk(), tmp_path / "a.mp4")
        assert list(tmp_path.iterdir()) == []

    def test_a_failing_ffmpeg_says_why(self, tmp_path, monkeypatch):
        program = tmp_path / "bin" / "ffmpeg"
        program.parent.mkdir()
        program.write_text("#!/bin/sh\necho 'unknown encoder libx264' >&2\nexit 3\n")
        program.chmod(0o755)
        monkeypatch.setenv("PATH", f"{program.parent}:/bin:/usr/bin")
        with pytest.raises(LandscapeError, match=r"could not write the animation: unknown encoder libx264"):
            save_animation(walk(), tmp_path / "a.mp4", seconds=0.2, dpi=40)
        assert [item.name for item in tmp_path.iterdir()] == ["bin"]

    @pytest.mark.slow
    def test_an_mp4_has_1920_x_1080_pixels_and_of_an_orbit_no_still_end(self, tmp_path):
        path = save_animation(on_the_surface(), tmp_path / "a.mp4", move="orbit", seconds=0.8, rate=5)
        assert film(path).shape == (4, 1080, 1920, 3)

    @pytest.mark.slow
    def test_a_gif_is_smaller_and_an_orbit_runs_in_a_circle(self, tmp_path):
        path = save_animation(on_the_surface(), tmp_path / "a.gif", move="orbit", seconds=0.3, rate=10)
        with Image.open(path) as found:
            assert found.size == (768, 432)
            assert found.n_frames == 3
            found.seek(2)
            assert found.info["duration"] == 100

    @pytest.mark.parametrize("turn", [0, 60])
    def test_a_walk_turns_only_if_it_is_asked_to(self, turn):
        options = {"seconds": 0.4, "rate": 10, "dpi": 40, "theme": "light"}
        first, *_, last = walk_frames(on_the_surface(), "surface", turn=turn, **options)
        assert ((first != last).any(axis=2).mean() > 0.1) == (turn > 0)

    @pytest.mark.parametrize(
        ("name", "arguments", "error", "message"),
        [
            ("a.gif", {"move": "spin"}, ValueError, "move must be one of 'walk', 'orbit', but got 'spin'"),
            ("a.gif", {"move": "orbit", "kind": "contour"}, ValueError, 'kind must be left out for move="orbit"'),
            ("a.gif", {"rate": 60}, ValueError, "rate must be an int from 1 to 50, but got 60"),
            ("a.gif", {"turn": 90.0}, ValueError, 'turn must be 0 for kind="contour"'),
            ("a.avi", {}, ValueError, r"path must be a name that ends in \.gif or \.mp4"),
            ("none/a.gif", {}, NotADirectoryError, "path must lie in a directory that exists, but .*none does not"),
        ],
    )
    def test_wrong_arguments(self, name, arguments, error, message, tmp_path):
        with pytest.raises(error, match=message):
            save_animation(on_the_surface(), tmp_path / name, **arguments)
        assert list(tmp_path.iterdir()) == []
