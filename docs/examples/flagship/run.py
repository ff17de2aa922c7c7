"""Skips against no skips: trains twelve networks, measures the loss around each, draws, and writes the page.

``make flagship`` runs it. What is done stays done: after a kill, the same command goes on.
"""

from __future__ import annotations

import argparse
import time
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import replace
from multiprocessing import get_context
from pathlib import Path

from drawings import draw_lines, draw_seeds, draw_surfaces
from experiment import Settings, folder_of, recipes, run_one
from findings import measured_text, write_page
from roughness import Roughness, Surroundings

DOCS = Path(__file__).resolve().parents[2]
PROCESSES = 2
ALL = Settings()
QUICK = Settings(depths=(8, 14), seeds=1, epochs=2, channels=4, size=9, lines=2, line_size=11, samples=64)


def measure_all(settings: Settings, output: Path) -> None:
    """Trains and measures every network, two at once, and says how each came out."""
    start = time.perf_counter()
    # All recipes of the first seed come first, so that an unfinished run already has one network of each.
    jobs = [(recipe, seed) for seed in range(settings.seeds) for recipe in recipes(settings)]
    with ProcessPoolExecutor(PROCESSES, mp_context=get_context("spawn")) as pool:
        running = [pool.submit(run_one, settings, recipe, seed, output) for recipe, seed in jobs]
        for count, done in enumerate(as_completed(running), 1):
            print(f"{count}/{len(jobs)}  {done.result()}  ({time.perf_counter() - start:.0f} s)", flush=True)


def show(settings: Settings, output: Path, home: Path, missing_seeds: int = 0) -> None:
    """Draws everything and writes the page ``flagship.md`` and its pictures into a folder."""
    found = {
        recipe: [
            Surroundings.load(folder_of(output, recipe, seed), settings.lines) for seed in range(settings.seeds)
        ]
        for recipe in recipes(settings)
    }  # fmt: skip
    images = home / "images"
    images.mkdir(parents=True, exist_ok=True)
    draw_surfaces(found, images / "flagship.png")
    draw_lines(found, images / "flagship_lines.png")
    if settings.seeds > 1:
        draw_seeds(found, images / "flagship_seeds.png")
    numbers = {recipe: [Roughness.of(network) for network in networks] for recipe, networks in found.items()}
    text = measured_text(settings, numbers, missing_seeds)
    write_page(DOCS / "flagship.md", home / "flagship.md", text)
    print(f"\n{text}\n\n{home / 'flagship.md'} and its pictures in {images} are written.")


def main() -> None:
    """Reads the command line and does everything."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=Path, default=Path("flagship_output"), help="folder of all that is measured")
    parser.add_argument(
        "--quick", action="store_true", help="a trial of minutes: small networks, one seed; its page stays in --output"
    )
    parser.add_argument("--seeds", type=int, choices=range(1, ALL.seeds + 1), help="only so many; the page says so")
    chosen = parser.parse_args()
    wanted = QUICK if chosen.quick else ALL
    settings = replace(wanted, seeds=min(chosen.seeds or wanted.seeds, wanted.seeds))
    measure_all(settings, chosen.output)
    home = chosen.output if chosen.quick else DOCS
    show(settings, chosen.output, home, wanted.seeds - settings.seeds)


if __name__ == "__main__":
    main()
