"""Who is compared: the recipes a user gives, as named networks."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from collectors.errors import CheckpointError, RunDirectoryError
from collectors.files.places import is_url
from collectors.networks.readers import is_network
from collectors.networks.weight_space import WeightSpace
from collectors.run_directory.directory import CHECKPOINT_FOLDER, RunDirectory
from collectors.validation import wrong_type, wrong_value
from collectors.weights.aligned import AlignedState, align, as_reader
from collectors.weights.safetensors_file import StateReader

from ..planes.networks import is_weights_file
from ..roles import check_name

_EXPECTED = 'a dict from recipes to lists of networks, such as {"sgd": [a, b, c], "adam": [d, e, f]}'
_OF_RECIPE = (
    "a list of weights, run directories or checkpoints, or a dict from names (such as seeds) to them, by which two "
    "recipes are paired"
)
_LONGEST = 100


@dataclass(frozen=True)
class Entry:
    """A network of a recipe.

    Attributes:
        name: by which the recipe's networks are told apart.
        label: how an error's text calls it.
        reader: its weights.
    """

    recipe: str
    name: str
    label: str
    reader: StateReader

    def state(self, space: WeightSpace) -> AlignedState:
        """Returns the weights under the network's names; a CheckpointError lists how they are another one's."""
        try:
            return align(self.reader, space)
        except CheckpointError as error:
            raise CheckpointError(
                f"{self.label} is another network than callback_fn returns: {error}\nNetworks of one architecture "
                "are compared: directions through others have nothing in common."
            ) from error


@dataclass(frozen=True)
class Recipes:
    """All networks.

    Attributes:
        names: of the recipes, in order.
        paired: those of the recipes whose networks have names.
        entries: the networks, recipe after recipe.
    """

    names: tuple[str, ...]
    paired: tuple[str, ...]
    entries: tuple[Entry, ...]

    @property
    def one_each(self) -> bool:
        """Whether each recipe has a single network."""
        return len(self.entries) == len(self.names)


def find_recipes(recipes: object) -> Recipes:
    """Opens the networks of all recipes, as ``compare`` takes them."""
    if not isinstance(recipes, Mapping):
        raise wrong_type("recipes", _EXPECTED, recipes)
    if len(recipes) < 2:
        raise ValueError(
            f"recipes must be at least two, because each is compared with the others, but got {list(recipes)}. Give "
            f"{_EXPECTED}."
        )
    names, paired, entries = [], [], []
    for recipe, given in recipes.items():
        name = check_name("a key of recipes", recipe)
        networks, with_names = _of_recipe(name, given)
        names.append(name)
        paired += [name] if with_names else []
        entries += networks
    return Recipes(tuple(names), tuple(paired), tuple(entries))


def check_different(digests: Mapping[str, str]) -> None:
    """Raises a ValueError where a SHA-256 of weights, by what texts call the network, is there twice."""
    labels: dict[str, str] = {}
    for label, digest in digests.items():
        if digest in labels:
            raise ValueError(
                f"{labels[digest]} and {label} are the same weights: a network that is given twice would count as two. "
                "Give each once."
            )
        labels[digest] = label


def _of_recipe(recipe: str, given: object) -> tuple[list[Entry], bool]:
    label = f"recipes[{recipe!r}]"
    if _is_one(given):
        raise wrong_type(label, f"{_OF_RECIPE}; put a single one into a list", given)
    if isinstance(given, Mapping):
        names = [check_name(f"a key of {label}", str(name)) for name in given]
        items: list[Any] = list(given.values())
        labels = [f"{label}[{name!r}]" for name in given]
    elif isinstance(given, Sequence):
        items = list(given)
        names = _names_of(items)
        labels = [f"{label}[{place}]" for place in range(len(items))]
    else:
        raise wrong_type(label, _OF_RECIPE, given)
    if not items:
        raise wrong_value(label, "at least one network", given)
    readers = [_open(text, item) for text, item in zip(labels, items, strict=True)]
    entries = [Entry(recipe, *parts) for parts in zip(names, labels, readers, strict=True)]
    return entries, isinstance(given, Mapping)


def _open(label: str, item: object) -> StateReader:
    if isinstance(item, str | os.PathLike) and _is_run(item):
        item = RunDirectory(item)
    if not isinstance(item, RunDirectory):
        return as_reader(label, item)
    there = item.present(tuple(sorted(item.metadata.files)))
    if not there:
        raise RunDirectoryError(f"{label} is the run {item.path}, which has no checkpoint. Train first.")
    return item.checkpoint(there[-1])


def _is_run(place: str | os.PathLike[str]) -> bool:
    return not is_weights_file(place) and (is_url(place) or (Path(place) / CHECKPOINT_FOLDER).is_dir())


def _is_one(given: object) -> bool:
    """Returns whether it is one network instead of several."""
    if isinstance(given, str | os.PathLike | RunDirectory) or is_network(given) or hasattr(given, "read_block"):
        return True
    arrays = list(given.values()) if isinstance(given, Mapping) else []
    return bool(arrays) and all(hasattr(item, "shape") and not is_network(item) for item in arrays)


def _names_of(items: Sequence[object]) -> list[str]:
    """Returns names that tell the networks of a list apart: from their paths, else their numbers."""
    names = []
    for place, item in enumerate(items):
        path = item.path if isinstance(item, RunDirectory) else item
        is_path = isinstance(item, str | os.PathLike | RunDirectory)
        names.append(Path(str(path)).stem if is_path else str(place + 1))
    if len(set(names)) < len(names):
        whole = [str(item)[-_LONGEST:] if isinstance(item, str | os.PathLike) else "" for item in items]
        names = [text if text and whole.count(text) == 1 else f"{place + 1}" for place, text in enumerate(whole)]
    return [check_name("the name of a network", name) for name in names]


def as_states(recipes: Recipes, space: WeightSpace) -> list[AlignedState]:
    """Returns all networks' weights under the measured one's names; raises for another network, or one given twice."""
    states = [entry.state(space) for entry in recipes.entries]
    check_different({entry.label: state.sha256() for entry, state in zip(recipes.entries, states, strict=True)})
    return states
