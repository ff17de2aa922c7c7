"""Draws the pictures of the documentation from a demo's output: ``python docs/draw_images.py demo_output``."""

from __future__ import annotations

import copy
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import matplotlib as mpl
import numpy as np

from landscape import Comparison, Landscape, SummaryLandscape, evaluate, pca_plane, random_plane
from landscape.demo import callback_fn, digits, digits_network
from landscape.figures import plot_multiples, save_figure
from landscape.functions import hessian_plane
from landscape.grid.landscape_file import read_landscape
from landscape.planes import plane_through, random_line
from landscape.record.checks import PointStatus
from landscape.sampling.sampling import full_grid

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "support"))
from chromium import chromium
from documentation import blocks, run_page
from documentation import gallery as pictures_of_the_gallery
from saddles import callback_fn as saddle_callback
from saddles import saddle

if TYPE_CHECKING:
    from torch import nn

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


def draw_progress(file: Path, picture: Path) -> None:
    """Draws how a landscape looks while it is measured: after 2, 10 and 50 % of its points, and whole."""
    whole = read_landscape(file)
    order = list(full_grid(whole.shape))
    moments = []
    for percent in (2, 10, 50, 100):
        data = copy.deepcopy(whole)
        rest = order[percent * len(order) // 100 :]
        data.status.flat[rest] = PointStatus.PENDING
        for values in data.metrics.values():
            values.flat[rest] = np.nan
        moments.append(Landscape(data))
    titles = ["the first points", "a little later", "half", "the whole"]
    save_figure(plot_multiples(moments, titles=titles, columns=2, theme="light")[0], picture, dpi=90)


def draw_saddle(file: Path) -> None:
    """Draws the surroundings of a saddle in random directions, and along its highest and lowest eigenvector."""
    from matplotlib import pyplot

    network = saddle()
    planes = (
        random_plane(network, seed=5, perturb_one_dimensional=True, name="the saddle"),
        hessian_plane(network, saddle_callback, which=("top", "bottom"), rise=0.03, name="the saddle", device_ids=[0]),
    )
    figure, both = pyplot.subplots(1, 2, figsize=(12, 5.2), layout="constrained")
    for plane, limits, ax in zip(planes, ((-0.3, 0.3), None), both, strict=True):
        seen = evaluate(plane, saddle_callback, size=41, limits=limits, device_ids=[0], progress=False)
        seen.plot_contour(ax=ax, aspect="fill", theme="light")
    figure.savefig(file, dpi=110)


def draw_curvature(demo: Path, sharpness: Path, spectrum: Path) -> None:
    """Draws the curvature along the demo's training, and the spectrum at its end."""
    run, options = SummaryLandscape(demo), {"num_samples": 1024, "device_ids": [0], "progress": False}
    with tempfile.TemporaryDirectory() as folder:
        over_training = run.gen_curvature(callback_fn, output=folder, **options)
        at_end = run.gen_curvature(callback_fn, [20], output=folder, bottom=1, density_probes=4, **options)
    save_figure(over_training.plot_sharpness(theme="light"), sharpness, dpi=110)
    save_figure(at_end.plot_spectrum(theme="light"), spectrum, dpi=110)


def train_on_digits(seed: int) -> nn.Module:
    """Returns the demo's network after a short training."""
    import torch

    (images, targets), _ = digits()
    torch.manual_seed(seed)
    network = digits_network()
    optimizer = torch.optim.Adam(network.parameters(), lr=0.01)
    for _ in range(150):
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(network(images), targets).backward()
        optimizer.step()
    return network.eval()


def draw_significance(file: Path) -> None:
    """Draws the surroundings of one network minus those of another, hatched where the difference may be chance."""
    options: dict[str, Any] = {
        "size": 31,
        "num_samples": 512,
        "keep_samples": True,
        "device_ids": [0],
        "progress": False,
    }
    first, second = (
        evaluate(random_plane(train_on_digits(seed), seed=0, name=f"seed {seed}"), callback_fn, **options)
        for seed in range(2)
    )
    save_figure(first.plot_difference(second, theme="light"), file, dpi=110)


def draw_topology(contour: Path, tree: Path) -> None:
    """Draws the plane through three networks of different seeds: minima on its contour, and their merge tree."""
    networks = {f"seed {seed}": train_on_digits(seed) for seed in range(3)}
    seen = evaluate(
        plane_through(networks), callback_fn, size=46, limits=(-0.4, 1.4), num_samples=1024, device_ids=[0],
        progress=False,
    )  # fmt: skip
    save_figure(seen.plot_contour(topology=True, theme="light"), contour, dpi=110)
    save_figure(seen.plot_merge_tree(theme="light"), tree, dpi=110)


def draw_hero(landscape: Landscape, file: Path) -> None:
    """Renders the plane of the demo's training."""
    from PIL import Image

    hero = landscape.plot_hero(camera="auto", pixels=(1280, 720), background="white")
    Image.fromarray(hero.pixels).convert("RGB").save(file, optimize=True)


def draw_first_page(path: Landscape, around: Landscape) -> None:
    """Renders the README's first picture, for light and for dark pages: the way down, and around where it ended."""
    from PIL import Image

    for theme in ("light", "dark"):
        whole = Image.new("RGBA", (1280, 560))
        for place, (landscape, camera) in enumerate(((path, (-120, 35)), (around, "auto"))):
            hero = landscape.plot_hero(camera=camera, pixels=(640, 560), aspect="fill", theme=theme)
            whole.paste(Image.fromarray(hero.pixels), (640 * place, 0))
        whole.save(IMAGES / f"first_page_{theme}.png", optimize=True)


def draw_comparison(file: Path) -> None:
    """Draws how far the loss rises around the networks of the two recipes that the page on comparing trains."""
    (_, _, start), (_, _, page) = blocks("quick_start.md")[0], blocks("comparing.md")[0]
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "my_training.py").write_text(start)
        (Path(folder) / "recipes.py").write_text(page)
        subprocess.run([sys.executable, "recipes.py"], cwd=folder, check=True)
        comparison = Comparison.load(Path(folder) / "compare.h5")
    save_figure(comparison.plot(theme="light"), file, dpi=110)


def draw_several_runs(file: Path) -> None:
    """Draws the plane of two runs and an average that the page on several runs measures."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        run_page("quick_start.md", folder)
        run_page("several_runs.md", folder)
        seen = Landscape.load(folder / "run" / "landscape_0-20_pca_and_SGD.h5")
    save_figure(seen.plot_contour(theme="light"), file, dpi=110)


def draw_long_path(file: Path) -> None:
    """Draws a training with a checkpoint after each of its 300 steps."""
    import torch

    (images, targets), _ = digits()
    torch.manual_seed(0)
    network = digits_network()
    optimizer = torch.optim.SGD(network.parameters(), lr=0.05, momentum=0.9)
    order = torch.Generator().manual_seed(0)
    come = [{name: value.clone() for name, value in network.state_dict().items()}]
    for _ in range(300):
        batch = torch.randint(len(targets), (32,), generator=order)
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(network(images[batch]), targets[batch]).backward()
        optimizer.step()
        come.append({name: value.clone() for name, value in network.state_dict().items()})
    seen = evaluate(
        pca_plane(come, network=network.eval()), callback_fn, size=25, num_samples=256, device_ids=[0], progress=False
    )
    save_figure(seen.plot_contour(title="A checkpoint after each step", theme="light"), file, dpi=110)


def draw_gallery() -> None:
    """Runs the gallery's commands where somebody has followed the quick start, and keeps each picture that it shows.

    The interactive page of the site, and its picture, are of the same landscape.
    """
    gallery = IMAGES / "gallery"
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        run_page("quick_start.md", folder)
        run_page("gallery.md", folder)
        shutil.rmtree(gallery, ignore_errors=True)
        gallery.mkdir()
        for picture, _ in pictures_of_the_gallery():
            shutil.copy(folder / picture, gallery / picture)
        shutil.copy(folder / "run" / "fine_0-20_pca.h5", IMAGES.parent / "examples" / "digits.h5")
        draw_page(folder / "landscape.html", IMAGES / "page.png")


def draw_page(page: Path, file: Path) -> None:
    """Photographs the interactive page."""
    with chromium() as browser:
        opened = browser.new_page(viewport={"width": 1280, "height": 760})
        opened.set_default_timeout(600_000)
        opened.goto(page.as_uri())
        opened.wait_for_selector(".plot .main-svg", state="attached")
        opened.wait_for_timeout(5_000)  # until the surface is drawn
        opened.screenshot(path=file)


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
    draw_long_path(IMAGES / "figures_long_path.png")
    draw_progress(demo / "landscape_0-20_pca.h5", IMAGES / "figures_progress.png")
    draw_hero(landscape, IMAGES / "figures_hero.png")
    draw_first_page(landscape, Landscape.load(demo / "landscape_20_random.h5"))
    draw_profile(demo, IMAGES / "concepts_profile.png")
    draw_saddle(IMAGES / "concepts_saddle.png")
    draw_topology(IMAGES / "topology_contour.png", IMAGES / "topology_tree.png")
    draw_significance(IMAGES / "figures_significance.png")
    draw_curvature(demo, IMAGES / "curvature_sharpness.png", IMAGES / "curvature_spectrum.png")
    draw_comparison(IMAGES / "comparing.png")
    draw_several_runs(IMAGES / "several_runs.png")
    draw_gallery()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
