"""The pictures: one network of each recipe, all networks, and the spread along random lines."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from experiment import Recipe
from matplotlib.cm import ScalarMappable
from matplotlib.figure import Figure
from roughness import GUESSING, Surroundings

from landscape.figures import Scale, choose_scale, plot_hero, plot_multiples, save_figure

CAMERA = (-50.0, 35.0)
CLIP = 100.0
"""The largest loss that pictures show: on the rim of deep networks it is millions, which would flatten all the rest."""
SHOWN_SEED = 0
"""Whose networks the large picture shows; chosen before any of them was trained."""
_THEME = "light"
_DPI = 130
# Of each rendered plane: half a figure wide, twice as fine as it is shown, so that thin lines stay smooth.
_PIXELS = (1040, 820)

Found = Mapping[Recipe, Sequence[Surroundings]]


def shared_scale(found: Found) -> Scale:
    """Returns one logarithmic scale, clipped above, for the planes of all networks."""
    values = [network.plane.loss.ravel() for networks in found.values() for network in networks]
    return choose_scale(np.concatenate(values), "log", clip=CLIP)


def draw_surfaces(found: Found, file: Path) -> None:
    """Renders the network of seed 0 of each recipe: a row for each depth, without skips on the left."""
    scale = shared_scale(found)
    figure = Figure(figsize=(8.0, 7.0), dpi=_DPI)
    panels = figure.subplots(2, 2)
    figure.subplots_adjust(0.0, 0.1, 1.0, 0.96, wspace=0.0, hspace=0.08)
    for panel, (recipe, networks) in zip(panels.flat, found.items(), strict=True):
        hero = plot_hero(networks[SHOWN_SEED].plane, scale=scale, camera=CAMERA, theme=_THEME, pixels=_PIXELS)
        panel.imshow(hero.pixels)
        panel.set_title(recipe.title)
        panel.axis("off")
    place = figure.add_axes((0.3, 0.065, 0.4, 0.016))
    bar = figure.colorbar(
        ScalarMappable(scale.norm(), "viridis"), cax=place, orientation="horizontal", extend=scale.extend
    )
    low, high = scale.height_range
    places = (scale.forward(scale.levels) - low) / (high - low)
    bar.set_ticks(scale.levels.tolist(), labels=scale.spaced_texts(places, 0.12))
    bar.minorticks_off()
    bar.set_label(f"height and colour: {scale.label('loss')}; star: the trained network")
    save_figure(panels[0, 0], file, dpi=_DPI)


def draw_seeds(found: Found, file: Path) -> None:
    """Draws all networks: a row for each recipe, a column for each seed."""
    planes = [network.plane for networks in found.values() for network in networks]
    titles = [f"{recipe.title}, seed {seed}" for recipe, networks in found.items() for seed in range(len(networks))]
    columns = len(next(iter(found.values())))
    axes = plot_multiples(
        planes, titles=titles, kind="surface", columns=columns, scale=shared_scale(found), camera=CAMERA, theme=_THEME
    )
    save_figure(axes[0], file, dpi=80)


def draw_lines(found: Found, file: Path) -> None:
    """Draws the loss along every line through every network, with the median and the range at each distance."""
    figure = Figure(figsize=(9.0, 7.0), layout="constrained")
    panels = figure.subplots(2, 2, sharex=True, sharey=True)
    for panel, (recipe, networks) in zip(panels.flat, found.items(), strict=True):
        x = networks[0].lines[0].x
        losses = np.stack([line.loss for network in networks for line in network.lines])
        panel.fill_between(x, losses.min(0), losses.max(0), color="C0", alpha=0.18, linewidth=0, label="range")
        panel.plot(x, losses.T, color="C0", linewidth=0.6, alpha=0.5)
        panel.plot(x, np.median(losses, 0), color="black", linewidth=1.8, label="median")
        panel.axhline(GUESSING, color="0.4", linestyle=":", linewidth=1, label="guessing")
        panel.set_title(recipe.title)
        panel.set_yscale("log")
        panel.spines[["top", "right"]].set_visible(False)
    count = len(networks) * len(networks[0].lines)
    panels[0, 0].legend(frameon=False)
    figure.supxlabel("Distance from the network, in lengths of its filters")
    figure.supylabel(f"Loss along {count} lines: {len(networks[0].lines)} random ones through each network")
    save_figure(panels[0, 0], file, dpi=110)
