"""``align``: a network's units in the order of another's, so that the two can be compared weight by weight."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from collectors.files.places import is_url
from collectors.networks.readers import framework_of, is_network, without_average
from collectors.networks.weight_space import State, WeightSpace
from collectors.validation import check_path, wrong_type, wrong_value
from collectors.weights.aligned import Weights, as_reader
from collectors.weights.aligned import align as under_names_of
from collectors.weights.safetensors_file import write_checkpoint
from workers.users_code import warn_user

from ..errors import AlignmentError
from ..planes.from_checkpoints import origin_state
from ..planes.from_weights import network_space
from ..replacing import check_no_input, check_replaceable_tensors
from .matching import PermutationGroup, PermutedAxis, match, permuted

if TYPE_CHECKING:
    from .graph_symmetries import OutputCheck

TOLERANCE = 1e-5  # how much outputs may differ, relative to the largest


@dataclass(frozen=True, eq=False)
class Aligned:
    """A network's weights in another order, which changes nothing of what it computes.

    Attributes:
        weights: name to array of every parameter and buffer; what ``line_between``, ``plane_through`` and the others
            take, and ``load_state_dict`` once they are tensors.
        groups: the axes that are permuted together, with their permutations; parts of an axis, such as the groups of
            GroupNorm, come before what is inside them.
        distance_before: from ``to``, over the trainable weights.
        distance_after: the same once the units are in order.
        verified: the largest difference of outputs that the new order makes, relative to the largest output; at most
            1e-5.
        dropped: groups that would have changed the outputs, and are left alone.
        unknown: operators of which is not known what they do to permuted axes: what they touch is left alone.
        sources: the files of both networks, as far as they are files.
    """

    weights: State = field(repr=False)
    groups: tuple[PermutationGroup, ...] = field(repr=False)
    distance_before: float
    distance_after: float
    verified: float
    dropped: tuple[PermutationGroup, ...] = field(default=(), repr=False)
    unknown: tuple[str, ...] = ()
    sources: tuple[str, ...] = field(default=(), repr=False)

    def summary(self) -> str:
        """Returns the facts in a few lines."""
        count, moved = len(self.groups), sum(group.moved > 0 for group in self.groups)
        lines = [
            f"{count} group{'s' * (count != 1)} of units, of which {moved} {'was' if moved == 1 else 'were'} permuted",
            f"distance {self.distance_before:.4g} -> {self.distance_after:.4g}",
            f"outputs differ by {self.verified:.1e} of the largest",
            *(f"left alone, because outputs changed: {group}" for group in self.dropped),
        ]
        if self.unknown:
            lines.append(f"left alone, because it is not known what they do: what {', '.join(self.unknown)} touches")
        return "\n".join(lines)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the weights as a safetensors file, which is replaced as a whole.

        Raises:
            ValueError: the path is a URL.
            LandscapeWriteError: it is a file of one of the two networks, or a file that holds no weights.
            FileWriteError: the file cannot be written.
        """
        if is_url(path):
            raise wrong_value("path", "a file on this machine", str(path))
        target = check_path("path", path)
        check_no_input("path", target, self.sources)
        check_replaceable_tensors(target, "weights", None)
        write_checkpoint(target, self.weights)


def align(
    b: Weights,
    to: Weights,
    *,
    network: object = None,
    example: Any = None,
    groups: Sequence[Mapping[str, Any]] | None = None,
) -> Aligned:
    """Returns the weights of ``b`` with its units in the order of those of ``to``.

    The units of a hidden layer have no order: permuting them, together with the weights that read them, changes nothing
    of what a network computes. Two trainings give their units different orders, which is most of what a straight line
    between them shows. What can be permuted is read off the network's graph; the order is found by weight matching, and
    is always verified on outputs, in eval mode.

    Args:
        b: weights in any form that planes take.
        to: weights of the same network.
        network: the PyTorch network; needed unless ``b`` or ``to`` is one. It stays as it is.
        example: inputs of the network, a few samples of the data set, given as the loss gives them: a tensor, a tuple
            of positions, or a dict of keywords. What they do not reach in the network is neither permuted nor verified.
        groups: what can be permuted together, by hand, where ``torch.export`` cannot read the network: for each group
            a dict from a tensor's name to its axis, such as {"fc1.weight": 0, "fc1.bias": 0, "fc2.weight": 1}. An axis
            that was flattened is (axis, before, after): the lengths of what lies outside and inside on it.

    Returns:
        The weights, and what was done to them.

    Raises:
        TypeError: an argument has the wrong type, or there is no network or no example.
        ValueError: ``groups`` names what the network does not have.
        CheckpointError: weights do not fit the network or are not finite.
        AlignmentError: the two hold equal weights, the network's graph cannot be read, or every group changes the
            outputs.

    Source: Ainsworth, Hayase and Srinivasa 2023.
    """
    module = _torch_network(network, b, to)
    space = network_space(network, b, to)
    if example is None:
        raise TypeError(
            "example is missing: inputs of the network, such as a batch of the data set, by which its symmetries are "
            "found and verified."
        )
    permutable = None if groups is None else _read_groups(groups, space)
    readers = [under_names_of(as_reader(label, item), space) for label, item in (("to", to), ("b", b))]
    states = [origin_state(reader, space) for reader in readers]
    target, moved = ({**parameters, **buffers} for parameters, buffers in states)
    before = _distance(target, moved, space)
    if before == 0:
        raise AlignmentError(
            "the two networks hold equal weights, so that there is nothing to align. Give two different ones."
        )

    from .graph_symmetries import OutputCheck, find_groups

    check = OutputCheck(module, example, moved)
    unknown: tuple[str, ...] = ()
    if permutable is None:
        permutable, unknown = find_groups(check.network, check.example, space)
    if not permutable:
        warn_user(
            f"{space.network} has no units that can be permuted"
            + (f": operators that are not known touch all of them ({', '.join(unknown)})" if unknown else "")
            + "; its weights stay as they are.",
        )
    matched, dropped, verified = _matched(target, moved, permutable, space, check)
    weights = permuted(moved, matched)
    if dropped:
        warn_user(
            "these units were left alone, because the network's outputs changed with their order: "
            + "; ".join(map(str, dropped)),
        )
    after = _distance(target, weights, space)
    # Of weights in memory the label is a word.
    sources = tuple(item.label for item in readers if is_url(item.label) or Path(item.label).is_absolute())
    return Aligned(weights, tuple(matched), before, after, verified, tuple(dropped), unknown, sources)


def _matched(
    target: State, moved: State, groups: Sequence[PermutationGroup], space: WeightSpace, check: OutputCheck
) -> tuple[list[PermutationGroup], list[PermutationGroup], float]:
    """Returns the groups whose permutations leave the outputs as they are, those that do not, and the difference."""
    one, other = ({info.name: state[info.name] for info in space.trainable} for state in (target, moved))
    kept, dropped = list(groups), list[PermutationGroup]()
    exact = False
    while True:
        matched = match(one, other, kept)
        changed = check.difference(permuted(moved, matched))
        if changed <= TOLERANCE:
            return matched, dropped, changed
        if not exact and check.in_float64():
            # A deep network may amplify what float32 rounds.
            exact = True
            continue
        alone = [check.difference(permuted(moved, [group])) for group in matched]
        wrong = [index for index, value in enumerate(alone) if not value <= TOLERANCE]
        dropped += [matched[index] for index in wrong]
        kept = [group for index, group in enumerate(kept) if index not in wrong]
        if not wrong or not kept:
            raise AlignmentError(
                f"permuting the units of {space.network} changes its outputs by {changed:.1e} of the largest, where "
                f"{TOLERANCE:g} is rounding, so that nothing is aligned. "
                + (f"Wrong are: {'; '.join(map(str, dropped))}. " if dropped else "")
                + "Say by hand what can be permuted together (groups=)."
            )


def _torch_network(network: object, *weights: Weights) -> Any:
    given = without_average(network if network is not None else next(filter(is_network, weights), None))
    if framework_of(given) != "torch":
        raise wrong_type(
            "network",
            "the PyTorch network itself, on which the new order is verified (networks of other frameworks cannot be "
            "aligned)",
            given,
        )
    return given


def _distance(one: State, other: State, space: WeightSpace) -> float:
    names = [info.name for info in space.trainable]
    differences = (one[name].astype(np.float64) - other[name].astype(np.float64) for name in names)
    return math.sqrt(sum(float(np.vdot(difference, difference).real) for difference in differences))


def _read_groups(groups: object, space: WeightSpace) -> list[PermutationGroup]:
    """Returns groups given by hand: dicts from a tensor to an axis, an (axis, before, after), or a list of those."""
    if isinstance(groups, str | Mapping) or not isinstance(groups, Sequence):
        raise wrong_type("groups", 'a list of groups such as {"fc1.weight": 0, "fc2.weight": 1}', groups)
    tensors = {name: info for info in space.tensors for name in (info.name, *info.aliases)}
    owners: dict[PermutedAxis, int] = {}
    read: list[PermutationGroup] = []
    for index, group in enumerate(groups):
        label = f"groups[{index}]"
        if not isinstance(group, Mapping) or not group:
            raise wrong_type(label, "a mapping from a tensor's name to an axis", group)
        sizes: dict[PermutedAxis, int] = {}
        for name, value in group.items():
            info = tensors.get(name)
            if info is None:
                raise ValueError(f"{label} names {name!r}, which is no parameter or buffer of {space.network}.")
            for item in value if isinstance(value, list) else [value]:
                axis = _axis(f"{label}[{name!r}]", info.name, item, len(info.shape))
                length, parts = info.shape[axis.axis], axis.before * axis.after
                if length % parts:
                    raise wrong_value(f"{label}[{name!r}]", f"an axis that {parts} parts divide", length)
                sizes[axis] = length // parts
                if owners.setdefault(axis, index) != index:
                    raise ValueError(f"{label} and groups[{owners[axis]}] both hold {axis}; each axis has one group.")
        if len(set(sizes.values())) > 1:
            listed = ", ".join(f"{axis}: {size}" for axis, size in sizes.items())
            raise ValueError(
                f"{label} must hold axes of one length, but got {listed}. Where an axis was flattened, give "
                "(axis, before, after), such as (1, 1, 16) for channels of 4 x 4 places."
            )
        read.append(PermutationGroup.unpermuted(next(iter(sizes.values())), list(sizes)))
    return read


def _axis(label: str, name: str, value: object, dimensions: int) -> PermutedAxis:
    parts = value if isinstance(value, tuple) else (value, 1, 1)
    if len(parts) != 3 or not all(isinstance(part, int) and not isinstance(part, bool) for part in parts):
        raise wrong_type(label, "an axis such as 0, or (axis, before, after)", value)
    axis, before, after = parts
    if not -dimensions <= axis < dimensions or min(before, after) < 1:
        raise wrong_value(label, f"an axis of {dimensions}, and lengths of at least 1", value)
    return PermutedAxis(name, axis % dimensions, before, after)
