"""The pictures: one network of each recipe, all networks, and the spread along random lines."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from experiment import Recipe
from matplotlib.figure import Figure
from roughness import GUESSING, Surroundings

from landscape.figures import Scale, choose_scale, plot_multiples, save_figure

CAMERA = (-50.0, 35.0)
CLIP = 100.0
"""The largest loss that pictures show: on the rim of deep networks it is millions, which would flatten all the rest."""
SHOWN_SEED = 0
"""Whose networks the large picture shows; chosen before any of them was trained."""
_THEME = "light"

Found = Mapping[Recipe, Sequence[Surroundings]]


def shared_scale(found: Found) -> Scale:
    """Returns one logarithmic scale, clipped above, for the planes of all networks."""
    values = [network.plane.loss.ravel() for networks in found.values() for network in networks]
    return choose_scale(np.concatenate(values), "log", clip=CLIP)


def draw_surfaces(found: Found, file: Path) -> None:
    """Draws the network of seed 0 of each recipe: a row for each depth, without skips on the left."""
    # For lit surfaces, render each plane with figures.plot_hero here, once it is there, with this scale and camera.
    axes = plot_multiples(
        [networks[SHOWN_SEED].plane for networks in found.values()],
        titles=[recipe.title for recipe in found],
        kind="surface", columns=2, scale=shared_scale(found), camera=CAMERA, theme=_THEME,
    )  # fmt: skip
    save_figure(axes[0], file, dpi=130)


def draw_seeds(found: Found, file: Path) -> None:
    """Draws all networks: a row for each recipe, a column for each seed."""
    planes = [network.plane for networks in found.values() for network in networks]
    titles = [f"{recipe.title}\nseed {seed}" for recipe, networks in found.items() for seed in range(len(networks))]
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
