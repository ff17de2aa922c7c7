from __future__ import annotations

import math

import numpy as np
import pytest

from landscape.rendering.light import lamp_seen, lamps_beside, lit, sky_seen
from landscape.rendering.viewpoint import VIEW_ANGLE, choose_viewpoint

STEPS = np.array([[0.02, 0.0], [0.0, 0.02]])


def test_a_plain_sees_the_whole_sky_and_the_lamp() -> None:
    flat = np.zeros((30, 40))
    np.testing.assert_array_equal(sky_seen(flat, STEPS), 1.0)
    np.testing.assert_array_equal(lamp_seen(flat, STEPS, lamps_beside(0).lamp), 1.0)


def test_a_pit_sees_less_of_the_sky_than_its_rim_and_as_much_as_its_walls_leave() -> None:
    wall = np.full((81, 81), 0.3)
    wall[21:60, 21:60] = 0.0
    seen = sky_seen(wall, STEPS)
    assert seen[40, 40] < 0.9 < seen[5, 40]
    # The horizon of the middle is the wall, at a distance of 20 steps or a little more in the diagonals.
    highest = 1 / (1 + (0.3 / (20 * 0.02)) ** 2)
    lowest_wall = 1 / (1 + (0.3 / (math.sqrt(2) * 25 * 0.02)) ** 2)
    assert highest - 1e-9 <= seen[40, 40] <= lowest_wall


def test_a_ridge_throws_its_shadow_away_from_the_lamp() -> None:
    ridge = np.zeros((60, 60))
    ridge[:, 30] = 0.3
    lamp = np.array([1.0, 0.0, 1.0]) / math.sqrt(2)
    seen = lamp_seen(ridge, STEPS, lamp)
    assert seen[30, 28] == 0
    assert seen[30, 32] == 1
    assert seen[30, 5] == 1


def test_holes_hide_nothing() -> None:
    heights = np.zeros((20, 20))
    heights[8:12, 8:12] = np.nan
    np.testing.assert_array_equal(sky_seen(heights, STEPS), 1.0)


def test_light_keeps_the_order_of_greys_and_shadow_is_darker() -> None:
    greys = np.repeat(np.linspace(0, 1, 9)[:, None], 3, axis=1)
    up = np.tile([0.0, 0.0, 1.0], (9, 1))
    lamps = lamps_beside(-60)
    bright, dark = lit(greys, up, up, lamps), lit(greys, up, up, lamps, sky=0.5, lamp=0.0)
    assert (np.diff(bright.mean(axis=1)) > 0).all()
    assert (dark[1:] < bright[1:]).all()
    assert bright.max() <= 1


@pytest.mark.parametrize(("width", "height"), [(1600, 900), (500, 1500)])
@pytest.mark.parametrize("elevation", [-30.0, 10.0, 60.0, 89.0])
def test_everything_is_in_the_picture_and_nearly_fills_it(width: int, height: int, elevation: float) -> None:
    points = np.random.default_rng(0).normal(size=(200, 3)) * (2, 1, 0.5)
    around, up = math.radians(25), math.radians(elevation)
    toward = np.array([math.cos(up) * math.cos(around), math.cos(up) * math.sin(around), math.sin(up)])
    seen = choose_viewpoint(toward, points, width, height)
    away = points - seen.eye
    half = math.tan(math.radians(VIEW_ANGLE / 2))
    across = away @ seen.right / (away @ seen.forward) / (half * width / height)
    upwards = away @ seen.up / (away @ seen.forward) / half
    ends = [across.min(), across.max(), upwards.min(), upwards.max()]
    assert max(map(abs, ends)) == pytest.approx(0.94)
    # One direction is filled from margin to margin, and the other one is in the middle.
    assert min(np.ptp(across) / 2, np.ptp(upwards) / 2) <= 0.94 + 1e-9
    assert max(np.ptp(across) / 2, np.ptp(upwards) / 2) == pytest.approx(0.94)
    assert seen.near == pytest.approx((away @ seen.forward).min())
