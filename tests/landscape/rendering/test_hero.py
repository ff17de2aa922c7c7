import io
import itertools
import os
import subprocess
import sys
from pathlib import Path

import matplotlib
import numpy as np
import pytest
from figure_cases import begun, build, build_line, build_real, build_unfinished
from PIL import Image
from waiting import PATIENCE

from landscape.drawing.camera import Camera
from landscape.errors import LandscapeRenderingError
from landscape.figures import choose_scale, plot_hero
from landscape.grid.data import DirectionsData
from landscape.landscape import Landscape
from landscape.record.checks import PointStatus
from landscape.rendering import scene

BASELINES = Path(__file__).parent / "baselines"
# Drivers differ in single pixels at edges (by 2.8 to 4.7 with the Mesa of two Debians), hardly in the means of blocks
# (0.4 to 0.8), where another light differs almost as much as in pixels (6.6).
TOLERANCE, BLOCK = 1.5, 8
SMALL = (320, 180)


def hero(data, **options):
    return plot_hero(Landscape(data), **{"pixels": SMALL, **options})


def page(picture):
    """The picture on white paper."""
    shown = Image.new("RGBA", picture.pixels.shape[1::-1], "white")
    shown.alpha_composite(Image.fromarray(picture.pixels))
    return shown.convert("RGB")


def pixels_like(picture, color):
    return (np.abs(picture.pixels[..., :3].astype(int) - color) < 60).all(axis=2) & (picture.pixels[..., 3] > 200)


@pytest.mark.usefixtures("_renderer")
class TestPicture:
    def test_nothing_is_behind_it_and_the_surface_is_whole(self):
        drawn = hero(build(points=0), camera=(-60, 60)).pixels
        assert drawn.shape == (180, 320, 4)
        assert drawn.dtype == np.uint8
        assert (drawn[[0, 0, -1, -1], [0, -1, 0, -1], 3] == 0).all()
        assert (drawn[..., 3] == 255).mean() > 0.15
        # Its edges are not mixed with black.
        edges = drawn[(drawn[..., 3] > 100) & (drawn[..., 3] < 220)]
        assert np.median(edges[:, :3].max(axis=1)) > 80

    def test_it_is_the_same_twice(self):
        first, second = (hero(build(), labels=True, pixels=(640, 400)) for _ in range(2))
        np.testing.assert_array_equal(first.pixels, second.pixels)
        assert first._repr_png_() == second._repr_png_()

    def test_a_pit_is_darker_where_the_scale_has_dark_colours(self):
        x = np.linspace(-1, 1, 41)
        drawn = hero(build(1 + x**2 + x[:, None] ** 2, points=0), camera=(-60, 89), trajectory=False).pixels
        bright = drawn[..., :3].astype(float).mean(axis=2)
        assert bright[80:100, 150:170].mean() < bright[40:60, 150:170].mean() - 20

    def test_missing_points_are_holes(self):
        data = build(points=0)
        whole = hero(data, camera=(-60, 89), trajectory=False).pixels
        data.metrics["loss"][5:15, 8:22], data.status[5:15, 8:22] = np.nan, PointStatus.FAILED
        holed = hero(data, camera=(-60, 89), trajectory=False)
        assert "Holes are points without a value: 140 failed" in "\n".join(holed.caption)
        assert (whole[80:100, 150:170, 3] == 255).all()
        assert (holed.pixels[80:100, 150:170, 3] < 255).mean() > 0.8

    def test_a_value_without_a_whole_cell_is_a_ball(self):
        loss = np.full((9, 9), np.nan)
        loss[0, :2], loss[1, :2] = 1.0, 2.0
        counts = []
        for value in (np.nan, 2.0):
            loss[4, 4] = value
            drawn = hero(build(loss, points=0), camera=(-90, 80), trajectory=False).pixels
            # Lines of the floor are grey there, and the ball has the colour of 2, the yellow end of the scale.
            red, green, blue = drawn[..., :3].astype(int)[30:110, 100:260].reshape(-1, 3).T
            counts.append(int(((red > 120) & (green > 100) & (blue < 90)).sum()))
        assert counts[0] == 0 < counts[1]

    def test_the_path_has_its_colour_and_is_hidden_behind_the_surface(self):
        data = build(points=2)
        data.checkpoints.x[:], data.checkpoints.y[:] = (-0.6, 0.6), (0.5, 0.5)
        # A wall between the viewer at the smallest y and the path.
        data.metrics["loss"][:] = 1.0 + 9 * np.exp(-((data.y[:, None] / 0.2) ** 2)) + 0 * data.x
        data.checkpoints.projected["loss"][:] = data.origin.metrics["loss"] = 1.0
        red = (229, 56, 59)
        seen = pixels_like(hero(data, camera=(90, 40), scale="linear"), red).sum()
        hidden = pixels_like(hero(data, camera=(-90, 25), scale="linear"), red).sum()
        none = pixels_like(hero(data, camera=(90, 40), scale="linear", trajectory=False), red).sum()
        assert seen > 3 * max(hidden, 10)
        assert none == 0

    def test_planes_are_to_scale(self):
        data = build(points=0)
        data.directions = DirectionsData(np.array([1.0, 4.0]), None, 0.0)
        for aspect, ratio in (("equal", 4.5 / 8.8), ("fill", 1.0)):
            drawn = hero(data, camera=(-90, 89), aspect=aspect, trajectory=False, pixels=(300, 300)).pixels[..., 3]
            rows, columns = np.nonzero(drawn == 255)
            assert np.ptp(columns) / np.ptp(rows) == pytest.approx(ratio, rel=0.15)

    def test_the_background_fills_what_was_clear(self):
        drawn = hero(build(), background="#102030").pixels
        assert (drawn[..., 3] == 255).all()
        assert tuple(drawn[0, 0]) == (16, 32, 48, 255)

    @pytest.mark.parametrize("interpolation", ["smooth", "linear"])
    def test_a_coarse_grid_and_a_single_row_are_drawn(self, interpolation):
        for loss in (np.arange(6.0).reshape(2, 3) + 1, np.arange(5.0)[None] + 1, np.full((4, 4), 2.0)):
            assert (hero(build(loss, points=0), interpolation=interpolation).pixels[..., 3] > 0).any()

    @pytest.mark.slow
    def test_it_is_seen_from_every_camera(self):
        seen = [hero(build(), camera=camera).pixels for camera in ("auto", (0, 90), Camera(0, -90), "low")]
        assert all((pixels[..., 3] > 0).any() for pixels in seen)
        assert all((one != other).any() for one, other in itertools.pairwise(seen))


@pytest.mark.usefixtures("_renderer")
class TestWords:
    def test_the_caption_says_what_the_picture_does_not(self):
        picture = hero(build_unfinished(), clip=(0.1, 2.0))
        text = "\n".join(picture.caption)
        assert "loss (log scale, clipped to 0.1 ... 2" in text
        assert "plateaus" in text
        assert "199 of 320 points measured so far, 32 interpolated" in text
        assert "80 pending, 9 failed, 3 not finite" in text
        assert "monotone cubics" in text
        assert "the plane is to scale" in text
        assert "projected loss" in text
        assert "bilinearly" in "\n".join(hero(build(), interpolation="linear").caption)

    def test_ends_that_are_near_each_other_are_told_apart(self):
        loss = np.linspace(2.3021, 2.3049, 15).reshape(3, 5)
        assert hero(build(loss, points=0)).caption[0].startswith("Height and colour: loss, 2.3021 to 2.3049;")

    def test_a_single_checkpoint_is_no_path(self):
        text = "\n".join(hero(build(points=1)).caption)
        assert "path" not in text
        assert "between two checkpoints" not in text

    def test_a_flat_plane_says_so(self):
        assert "Flat: loss is 1 at all 15 finite points" in hero(build(np.full((3, 5), 1.0), points=0)).caption[0]

    def test_a_png_keeps_them(self, tmp_path):
        picture = hero(build(network="Nett é"), dpi=150)
        assert picture.save(tmp_path / "hero.png") == tmp_path / "hero.png"
        with Image.open(tmp_path / "hero.png") as stored:
            assert stored.size == SMALL
            assert stored.mode == "RGBA"
            assert stored.info["Title"] == "Nett é, epochs 3 to 14"
            assert stored.info["Description"] == "\n".join(picture.caption)
            assert stored.info["dpi"] == pytest.approx((150, 150), abs=0.1)
            np.testing.assert_array_equal(np.asarray(stored), picture.pixels)

    def test_a_description_stands_before_them(self, tmp_path):
        picture = hero(build())
        with Image.open(picture.save(tmp_path / "hero.png", description="A valley.")) as stored:
            assert stored.info["Description"] == "\n".join(["A valley.", *picture.caption])
        with pytest.raises(TypeError, match="description must be a str or None, but got int"):
            picture.save(tmp_path / "hero.png", description=3)

    def test_labels_stand_below_and_the_picture_keeps_its_size(self):
        plain, labelled = (hero(build(), labels=labels, pixels=(900, 600)) for labels in (False, True))
        assert labelled.pixels.shape == plain.pixels.shape == (600, 900, 4)
        # Text has no colour.
        strip = labelled.pixels[-60:]
        grey = np.ptp(strip[..., :3].astype(int), axis=2) < 8
        assert ((strip[..., 3] > 128) & grey).sum() > 300
        assert ((plain.pixels[-60:, :100, 3] > 128).sum()) == 0

    def test_labels_are_in_the_font_that_is_asked_for(self):
        sans, serif = (hero(build(points=0), labels=True, pixels=(900, 600), font=font) for font in ("sans", "serif"))
        assert (sans.pixels != serif.pixels).any()
        with pytest.raises(ValueError, match="font must be one of 'sans', 'serif', but got 'comic'"):
            hero(build(), font="comic")

    def test_size_times_dpi(self):
        assert hero(build(points=0), pixels=None, size=(3, 2), dpi=50).pixels.shape == (100, 150, 4)


WRONG_VALUES = (
    ({"pixels": (9000, 100)}, r"pixels must be \(width, height\), each a whole number from 64 to 8192"),
    ({"pixels": (100, 10)}, r"pixels must be .* from 64 to 8192, but got \(100, 10\)"),
    ({"size": (3, 2)}, "size must be left out where pixels are given"),
    ({"pixels": None, "size": (40, 40), "dpi": 600}, "40 x 40 inches at 600 dots per inch are 24000 x 24000"),
    ({"dpi": 3}, "dpi must be"),
    ({"labels": True}, "labels must be False for a picture that is narrower than 600 pixels"),
    ({"labels": True, "pixels": (800, 100)}, "there is no room for them"),
    ({"background": "nocolour"}, "background must be one of matplotlib's colours"),
    ({"interpolation": "cubic"}, "interpolation must be one of 'smooth', 'linear'"),
    ({"style": "paper"}, "style must be left out for plot_hero"),
    ({"topology": True}, "topology must be left out for plot_hero"),
    ({"camera": "behind"}, "camera must be"),
    ({"colormap": "nothing"}, "colormap must be"),
    ({"scale": choose_scale(np.array([1.0, 9])), "levels": 5}, "scale is a Scale, which has its levels and"),
)


class TestErrors:
    @pytest.mark.parametrize(
        ("data", "options", "error", "expected"),
        [
            *((build(), options, ValueError, expected) for options, expected in WRONG_VALUES),
            (build(), {"pixels": 640}, TypeError, r"pixels must be \(width, height\)"),
            (build(), {"pixels": (640.5, 480)}, TypeError, r"pixels\[0\] must be an int"),
            (build(), {"color": "red"}, TypeError, "plot_hero has no argument 'color'"),
            (build(), {"metric": "nothing"}, KeyError, "no metric"),
            (build_line([1, 2]), {}, ValueError, r"plot_hero needs a plane, but .* is a line; use plot_profile\."),
            (begun(build(points=0), 0), {}, ValueError, "needs a finite value of 'loss', but the landscape has none"),
        ],
    )
    def test_wrong_arguments(self, data, options, error, expected):
        with pytest.raises(error, match=expected):
            hero(data, **options)

    @pytest.mark.usefixtures("_renderer")
    def test_another_kind_of_file(self, tmp_path):
        picture = hero(build(points=0), pixels=(64, 64))
        with pytest.raises(ValueError, match=r"path must be a name that ends in \.png, because a hero is made"):
            picture.save(tmp_path / "hero.pdf")
        assert not list(tmp_path.iterdir())


def run(code, **environment):
    """Runs lines in a process of their own and returns what they wrote."""
    start = "import sys; sys.path.insert(0, 'tests/support')\nfrom figure_cases import build\n"
    start += "from landscape.landscape import Landscape\nlandscape = Landscape(build())\n"
    found = subprocess.run(
        [sys.executable, "-c", start + code], capture_output=True, text=True, check=True, timeout=PATIENCE,
        env={**os.environ, **environment}, cwd=Path(__file__).parents[3],
    )  # fmt: skip
    return found.stdout + found.stderr


def test_without_pyvista_the_error_names_the_extra(monkeypatch):
    for name in ("pyvista", "vtkmodules"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(ImportError, match=r"plot_hero needs pyvista: pip install 'summary-landscape\[vtk\]'"):
        hero(build())


@pytest.mark.slow
@pytest.mark.usefixtures("_renderer")
@pytest.mark.skipif(sys.platform != "linux", reason="only Linux draws without a display by EGL")
def test_without_opengl_there_is_an_error_and_no_crash(tmp_path):
    code = """
try:
    landscape.plot_hero(pixels=(64, 64))
except Exception as error:
    print(type(error).__name__, error)
"""
    # Without a vendor's library EGL has no device.
    found = run(code, __EGL_VENDOR_LIBRARY_DIRS=str(tmp_path), DISPLAY="")
    assert LandscapeRenderingError.__name__ in found
    assert "apt-get install libegl1 libgl1-mesa-dri" in found


@pytest.mark.slow
@pytest.mark.usefixtures("_renderer")
def test_vtk_is_silent():
    assert not run("landscape.plot_hero(pixels=(64, 64))", DISPLAY="").strip()


PICTURES = {
    "hero": lambda: hero(build(), pixels=(480, 270)),
    "hero_labels": lambda: hero(build_real("surface_resnet_pca", "ResNet"), pixels=(640, 480), labels=True),
    "hero_unfinished": lambda: hero(build_unfinished(), pixels=(480, 270), camera="above"),
    "hero_dark": lambda: hero(build(), pixels=(480, 270), theme="dark", background="#14171c", colormap="magma"),
}


def difference_from(path, picture):
    """The root of the mean squared difference of blocks, 0 to 255, in the stored picture's own colours."""
    with Image.open(path) as stored:
        drawn = page(picture).quantize(palette=stored, dither=Image.Dither.NONE)
        pair = [np.asarray(shown.convert("RGB").reduce(BLOCK), float) for shown in (stored, drawn)]
    return float(np.sqrt(np.mean((pair[0] - pair[1]) ** 2)))


@pytest.mark.usefixtures("_renderer")
class TestBaselines:
    @pytest.mark.parametrize("name", PICTURES)
    def test_it_looks_as_before(self, name):
        """Look at the pictures after a wanted change, and store them anew with ``REGENERATE_BASELINES=1``."""
        if name == "hero_labels" and matplotlib.__version_info__ < (3, 11):
            pytest.skip("older matplotlibs draw the labels' letters otherwise; TestWords asks where they stand")
        path, picture = BASELINES / f"{name}.png", PICTURES[name]()
        if os.environ.get("REGENERATE_BASELINES") == "1":
            shown = page(picture)
            file = io.BytesIO()
            shown.quantize(palette=shown.quantize(200), dither=Image.Dither.NONE).save(file, "PNG", optimize=True)
            path.write_bytes(file.getvalue())
        assert difference_from(path, picture) < TOLERANCE

    def test_another_light_would_be_seen(self, monkeypatch):
        monkeypatch.setattr(scene, "_LAMPS", tuple((-azimuth, *others) for azimuth, *others in scene._LAMPS))
        assert difference_from(BASELINES / "hero.png", PICTURES["hero"]()) > 3 * TOLERANCE

    def test_they_are_those_of_the_tests_and_small(self):
        assert {path.stem for path in BASELINES.glob("*.png")} == set(PICTURES)
        assert sum(path.stat().st_size for path in BASELINES.iterdir()) < 300_000
