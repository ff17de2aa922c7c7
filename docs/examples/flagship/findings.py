"""What the measurements say, in a table and in sentences, and the page that holds them."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np
from experiment import Recipe, Settings
from roughness import Roughness

BEGIN, END = "<!-- measured: begin -->", "<!-- measured: end -->"
_WIDTH = 120

Numbers = Mapping[Recipe, Sequence[Roughness]]

_ROWS: tuple[tuple[str, Callable[[Roughness], float], str], ...] = (
    ("loss of the network itself, all training samples", lambda found: found.loss, ".2g"),
    ("test accuracy", lambda found: found.test_accuracy, ".1%"),
    ("**steps outwards on which the loss falls**", lambda found: found.falling_outwards, ".1%"),
    ("points of the lines at which the loss bends down", lambda found: found.bending_down, ".1%"),
    ("minima of the plane's grid, deeper than twice the standard error", lambda found: found.minima, ".0f"),
    ("shallower minima", lambda found: found.shallow_minima, ".0f"),
    ("points of the plane worse than guessing (loss above ln 10)", lambda found: found.worse_than_guessing, ".1%"),
    ("largest loss of the plane", lambda found: found.largest, ".2g"),
)


def table(numbers: Numbers) -> list[str]:
    """Returns a Markdown table: a row for each number, a column for each recipe, the median with all seeds' range."""
    rows = list(_ROWS)
    if any(network.not_finite for networks in numbers.values() for network in networks):
        rows.append(("points of the plane that are not finite", lambda found: found.not_finite, ".1%"))
    lines = [f"| | {' | '.join(recipe.title for recipe in numbers)} |", "|---" * (len(numbers) + 1) + "|"]
    for label, number, form in rows:
        cells = [_with_range([number(network) for network in networks], form) for networks in numbers.values()]
        lines.append(f"| {label} | {' | '.join(cells)} |")
    return lines


def is_above(first: Sequence[float], second: Sequence[float]) -> bool:
    """Returns whether every seed's value of the first recipe is above every seed's of the second."""
    return min(first) > max(second)


def answers(numbers: Numbers) -> list[str]:
    """Returns what the seeds say about each claim of Li et al. 2018, by the number that was chosen beforehand."""
    falls = {recipe: [network.falling_outwards for network in networks] for recipe, networks in numbers.items()}
    plain, plain_deep = (recipe for recipe in numbers if not recipe.skips)
    skips, skips_deep = (recipe for recipe in numbers if recipe.skips)
    claims = (
        (f"Without skips, {plain_deep.layers} layers are rougher than with skips", plain_deep, skips_deep, True),
        (f"Without skips, {plain_deep.layers} layers are rougher than {plain.layers}", plain_deep, plain, True),
        (f"With {plain.layers} layers, leaving out the skips matters little", plain, skips, False),
        (f"With skips, {skips_deep.layers} layers are about as smooth as {skips.layers}", skips_deep, skips, False),
    )
    minima = [network.minima for network in numbers[plain_deep]]
    return [
        f"- *Without skips, {plain_deep.layers} layers are chaotic*: {_chaos(minima)}.",
    ] + [
        f"- *{claim}*: {_verdict(falls[first], falls[second], rougher=rougher)} "
        f"({_with_range(falls[first], '.1%')} against {_with_range(falls[second], '.1%')})."
        for claim, first, second, rougher in claims
    ]


def measured_text(settings: Settings, numbers: Numbers, missing_seeds: int = 0) -> str:
    """Returns what stands between the page's markers; ``missing_seeds`` are still to be trained and measured."""
    count = settings.seeds
    samples = "all training samples" if settings.samples is None else f"the first {settings.samples} training samples"
    manner = (
        f"{len(numbers) * count} networks, {_seeds(count)} of each recipe. {settings.epochs} epochs of SGD with "
        f"momentum 0.9 (Nesterov) in batches of {settings.batch}; a learning rate of up to "
        f"{settings.learning_rate:g}, which rises over the first tenth of the steps and falls along a cosine; weight "
        f"decay {settings.weight_decay:g}; no augmentation; {settings.channels} channels in the first stage. Planes "
        f"of {settings.size} x {settings.size} points and {settings.lines} lines of {settings.line_size} points "
        f"through each network, from -1 to 1, on {samples}."
    )
    pictures = (
        "| seed 0 of each recipe | every line through every network |",
        "|---|---|",
        "| ![The loss around four networks](images/flagship.png) "
        "| ![The loss along random lines, with median and range](images/flagship_lines.png) |",
    )
    parts = ["\n".join(pictures), textwrap.fill(manner, _WIDTH, break_on_hyphens=False)]
    if missing_seeds:
        parts.insert(0, f"**Not finished**: {_seeds(missing_seeds)} to come, `make flagship` goes on.")
    several = count > 1
    parts += [f"Each number is the median of {_seeds(count)}, with the lowest and the highest in brackets:"] * several
    parts += ["\n".join(table(numbers)), "\n".join(answers(numbers))]
    parts += ["![The loss around all networks](images/flagship_seeds.png)"] * several
    return "\n\n".join(parts)


def write_page(template: Path, page: Path, text: str) -> None:
    """Writes the template with the text between its markers.

    Raises:
        ValueError: the template does not have both markers.
    """
    whole = template.read_text()
    if whole.count(BEGIN) != 1 or whole.count(END) != 1:
        raise ValueError(f"{template} must have the lines {BEGIN} and {END} once each; put them around the results.")
    before, rest = whole.split(BEGIN)
    page.write_text(f"{before}{BEGIN}\n\n{text}\n\n{END}{rest.split(END)[1]}")


def _chaos(minima: Sequence[int]) -> str:
    """Returns whether planes have more than one minimum that is deeper than the uncertainty of the loss."""
    several = sum(count > 1 for count in minima)
    verdict = "**yes**" if several == len(minima) else "**no**" if not several else "**not decided**"
    return f"{verdict}, {several} of {len(minima)} planes have more than one minimum that counts"


def _verdict(first: Sequence[float], second: Sequence[float], *, rougher: bool) -> str:
    """Returns the answer; ``rougher`` says whether the claim is that the first recipe is rougher, or no different."""
    seeds = _seeds(len(first))
    if len(first) == 1:
        return "one seed decides nothing"
    if is_above(first, second):
        return f"{'**yes**' if rougher else '**no**, it is rougher'}, for each of {seeds}"
    if is_above(second, first):
        return f"{'**no**, the other way round' if rougher else '**yes**, it is even smoother'}, for each of {seeds}"
    return f"**not decided**, {seeds} overlap" if rougher else f"**no difference** beyond that of {seeds}"


def _with_range(values: Sequence[float], form: str) -> str:
    middle = format(float(np.median(values)), form)
    if len(values) == 1:
        return middle
    return f"{middle} ({format(min(values), form)} to {format(max(values), form)})"


def _seeds(count: int) -> str:
    return f"{count} seed{'' if count == 1 else 's'}"
