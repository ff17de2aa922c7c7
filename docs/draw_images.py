"""Draws the pictures of the documentation from a demo's output: ``python docs/draw_images.py demo_output``."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import matplotlib as mpl
import numpy as np

from landscape import Landscape, evaluate, random_line
from landscape.demo import callback_fn, digits_network
from landscape.figures import plot_multiples, save_figure

mpl.use("Agg")

IMAGES = Path(__file__).parent / "images"


def draw_path(landscape: Landscape, file: Path) -> None:
    """Draws each checkpoint's own loss beside the loss at its foot on the plane."""
    from matplotlib import pyplot

    trajectory = landscape.checkpoints
    assert trajectory is not None
    figure, (losses, distances) = pyplot.subplots(2, 1, sharex=True, figsize=(6.4, 4.6), height_ratios=(2, 1))
    losses.plot(trajectory.number, trajectory.metrics["loss"], "o-", label="the checkpoint itself")
    losses.plot(trajectory.number, trajectory.projected["loss"], "s--", label="its foot on the plane")
    losses.set_ylabel("Loss")
    losses.set_yscale("log")
    losses.legend(frameon=False)
    distances.bar(trajectory.number, trajectory.residual / np.max(trajectory.norm), color="0.6")
    distances.set_ylabel("Distance\nfrom the plane")
    distances.set_xlabel("Epoch (distances as shares of the largest distance from the last checkpoint)")
    for axes in (losses, distances):
        axes.spines[["top", "right"]].set_visible(False)
    figure.tight_layout()
    figure.savefig(file, dpi=110)


def draw_profile(demo: Path, file: Path) -> None:
    """Draws the loss along a random direction through the network that the demo trained."""
    (last,) = (demo / "ckpt_dir").glob("*_20_epoch.safetensors")
    direction = random_line(last, network=digits_network(), seed=0, name="epoch 20")
    line = evaluate(direction, callback_fn, size=41, num_samples=256, device_ids=[0], progress=False)
    line.plot_profile().figure.savefig(file, dpi=110)


def main(demo: Path) -> None:
    """Draws what the pages and the README show.

    Args:
        demo: the directory that ``landscape demo`` wrote.
    """
    for source, name in (
        ("landscape_0-20_pca_contour.png", "digits_pca_contour.png"),
        ("landscape_0-20_pca_surface.png", "digits_pca_surface.png"),
        ("landscape_20_random_contour.png", "digits_random_contour.png"),
    ):
        shutil.copy(demo / source, IMAGES / name)
    landscape = Landscape.load(demo / "landscape_0-20_pca.h5")
    draw_path(landscape, IMAGES / "concepts_path.png")
    both = plot_multiples([landscape, Landscape.load(demo / "landscape_20_random.h5")], theme="light")
    save_figure(both[0], IMAGES / "figures_multiples.png", dpi=110)
    landscape.save_animation(IMAGES / "figures_walk.gif", theme="light")
    draw_profile(demo, IMAGES / "concepts_profile.png")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
