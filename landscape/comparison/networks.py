"""Who is compared: the recipes a user gives, as named networks."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from collectors.errors import CheckpointError, RunDirectoryError
from collectors.networks.readers import is_network
from collectors.networks.weight_space import WeightSpace
from collectors.run_directory.directory import RunDirectory
from collectors.validation import wrong_type, wrong_value
from collectors.weights.aligned import AlignedState, align, as_reader
from collectors.weights.safetensors_file import StateReader

from ..planes.networks import is_run_folder, is_weights_file
from ..roles import check_name

_EXPECTED = 'a dict from recipes to lists of networks, such as {"sgd": [a, b, c], "adam": [d, e, f]}'
_OF_RECIPE = (
    "a list of weights, run directories or checkpoints, or a dict from names (such as seeds) to them, by which two "
    "recipes are paired"
)
_LONGEST = 100


@dataclass(frozen=True)
class Entry:
    recipe: str
    name: str  # by which the recipe's networks are told apart
    label: str  # how an error's text calls it
    reader: StateReader  # of its weights


@dataclass(frozen=True)
class Recipes:
    names: tuple[str, ...]  # in order
    paired: tuple[str, ...]  # those whose networks have names
    entries: tuple[Entry, ...]  # the networks, recipe after recipe


def find_recipes(recipes: object) -> Recipes:
    if not isinstance(recipes, Mapping):
        raise wrong_type("recipes", _EXPECTED, recipes)
    if len(recipes) < 2:
        raise ValueError(
            f"recipes must be at least two, because each is compared with the others, but got {list(recipes)}. Give "
            f"{_EXPECTED}."
        )
    entries = []
    for recipe, given in recipes.items():
        entries += _of_recipe(check_name("a key of recipes", recipe), given)
    paired = tuple(recipe for recipe, given in recipes.items() if isinstance(given, Mapping))
    return Recipes(tuple(recipes), paired, tuple(entries))


def _of_recipe(recipe: str, given: object) -> list[Entry]:
    label = f"recipes[{recipe!r}]"
    if _is_one(given):
        raise wrong_type(label, f"{_OF_RECIPE}; put a single one into a list", given)
    if isinstance(given, Mapping):
        names, networks = [check_name(f"a key of {label}", str(name)) for name in given], dict(given)
    elif isinstance(given, Sequence):
        names, networks = _names_of(given), dict(enumerate(given))
    else:
        raise wrong_type(label, _OF_RECIPE, given)
    if not networks:
        raise wrong_value(label, "at least one network", given)
    labels = [f"{label}[{key!r}]" for key in networks]
    readers = [_open(text, item) for text, item in zip(labels, networks.values(), strict=True)]
    return [Entry(recipe, *parts) for parts in zip(names, labels, readers, strict=True)]


def _open(label: str, item: object) -> StateReader:
    if isinstance(item, str | os.PathLike) and not is_weights_file(item):
        item = RunDirectory(item) if is_run_folder(item) else item
    if not isinstance(item, RunDirectory):
        return as_reader(label, item)
    there = item.present_numbers
    if not there:
        raise RunDirectoryError(f"{label} is the run {item.path}, which has no checkpoint. Train first.")
    return item.checkpoint(there[-1])


def _is_one(given: object) -> bool:
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
    states = []
    for entry in recipes.entries:
        try:
            states.append(align(entry.reader, space))
        except CheckpointError as error:
            raise CheckpointError(
                f"{entry.label} is another network than callback_fn returns: {error}\nNetworks of one architecture "
                "are compared: directions through others have nothing in common."
            ) from error
    labels: dict[str, str] = {}
    for entry, state in zip(recipes.entries, states, strict=True):
        first = labels.setdefault(state.sha256(), entry.label)
        if first != entry.label:
            raise ValueError(
                f"{first} and {entry.label} are the same weights: a network that is given twice would count as two. "
                "Give each once."
            )
    return states
