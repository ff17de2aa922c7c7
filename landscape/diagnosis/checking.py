"""The check of a run and its callback_fn, from what needs no measuring to what does, and what it looked at."""

from __future__ import annotations

import contextlib
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from collectors.errors import CheckpointError, LandscapeError
from collectors.networks.weight_space import WeightSpace, some_names
from collectors.run_directory.directory import RunDirectory
from collectors.summary.recorded_values import RecordedTraining, recorded_training
from collectors.validation import wrong_type
from collectors.weights.aligned import AlignedState, align
from workers.errors import FrozenNetworkError, NondeterministicLossError, SamplesError, quotes_user
from workers.evaluator import EvaluatorDescription
from workers.measuring.checks import check_same_values
from workers.pools.first_call import FirstCall, other_random_numbers

from ..curvature.facts import evenly_chosen
from ..record.identity import data_set_json, identity_of
from ..record.workers import measurement_options
from .diagnosis import Diagnosis, Fact, Finding, QuotedFinding
from .losses import LossCheck
from .measuring import Comparison, MeasuredRun, measure_run, one_device, sample_counts, samples_in, warnings_as_texts

_CHECKPOINTS = 5
_FEWEST = 3  # that a plane goes through
_MEANINGS = {
    "fixed": "each checkpoint has its own; on a plane they are those of its origin",
    "recalibrate": "statistics of normalization layers are computed anew at each point",
}
# How many times as high as logged a loss may be unnoticed before check says so.
_WIDE = 2.0


def check_run(run: RunDirectory, callback_fn: Callable[[], Any], chosen: Mapping[str, Any]) -> Diagnosis:
    """Returns what is wrong with a run or its callback_fn; what goes wrong in the user's code is a finding too."""
    # What was passed wrongly is an error, and no finding.
    if not callable(callback_fn):
        raise wrong_type("callback_fn", "a function without arguments", callback_fn)
    wanted = {
        "num_samples": run.settings.num_samples if chosen["num_samples"] is None else chosen["num_samples"],
        "buffers": measurement_options(chosen).buffers,
        "device_ids": one_device(chosen["device_ids"]),
    }
    check = _Check(run, callback_fn, {**chosen, **wanted})
    try:
        check.look()
    except (LandscapeError, TypeError, ValueError) as error:
        about, expected, remedy = next(known for kind, known in _RAISED.items() if isinstance(error, kind))
        kind = QuotedFinding if quotes_user(error) else Finding
        check.findings.append(kind(about, str(error), expected, f"{remedy} The rest was not looked at."))
    return Diagnosis(tuple(check.findings), tuple(check.facts), check.compared.rows if check.compared else ())


class _Check:
    def __init__(self, run: RunDirectory, callback_fn: Callable[[], Any], chosen: dict[str, Any]) -> None:
        self._run, self._callback_fn, self._chosen = run, callback_fn, chosen
        self.findings: list[Finding] = []
        self.facts: list[Fact] = []
        self.compared: Comparison | None = None

    def look(self) -> None:
        run, unit = self._run, self._run.settings.unit
        there = run.present_numbers
        self._numbers = [there[place] for place in evenly_chosen(len(there), _CHECKPOINTS)]
        self.facts += _run_facts(run, there, self._numbers)
        if len(there) < _FEWEST:
            remedy = "train longer, or collect in smaller intervals."
            self.findings.append(Finding("run", f"there are {len(there)} checkpoints.", f"at least {_FEWEST}.", remedy))
            return
        with warnings_as_texts() as said:
            first = FirstCall(self._callback_fn, self._chosen)
            states = self._states(first.space)
            self._measured = measure_run(first, states, self._chosen)
            self._result = FirstCall(self._callback_fn).result()
        description = self._measured.description
        if lost := [number for number in self._numbers if number > self._measured.last]:
            seen = f"the weights are not finite at {unit}{'s' * (len(lost) > 1)} {some_names(lost)}."
            remedy = "leave them out (end the interval before), or train again where it diverged."
            self.findings.append(Finding("checkpoint", seen, "weights through which a plane can go.", remedy))
        self.facts += _network_facts(description.space, self._chosen["buffers"])
        self.facts += _sample_facts(self._measured, self._result)
        matches = [(text, _BROADCAST.match(text)) for text in said]
        texts = [text for text, match in matches if match is None]
        self.findings += [_of_broadcast(*match.groups()) for _, match in matches if match is not None][:1]
        self.facts += [Fact("warning", text) for text in texts if not any(note in text for note in description.notes)]
        training = recorded_training(run.path)
        losses = LossCheck(
            self._callback_fn, self._result, self._chosen, states, run.metadata, training, self._measured
        )
        self.facts += losses.clues()
        if not self._are_alike_in_other_calls(states):
            self.facts.append(Fact("logged losses", "not compared before the samples are always the same."))
            return
        self.findings += losses.not_finite()
        self.compared = losses.compare()
        if self.compared is not None:
            found = losses.findings(self.compared)
            self.findings += [item for item in found if isinstance(item, Finding)]
            self.facts += [item for item in found if isinstance(item, Fact)]
        self.facts += logged_facts(self.compared, training, unit)

    def _states(self, space: WeightSpace) -> dict[int, AlignedState]:
        states = {number: align(self._run.checkpoint(number, space), space) for number in self._numbers}
        if not self._run.metadata.imported:  # checkpoints alone do not say what was frozen
            self.findings += _trainable(space, self._run.metadata.network.get("trainable"))
        first, last = self._numbers[0], self._numbers[-1]
        one, other = states[first], states[last]
        if all(np.array_equal(one.read(info.name), other.read(info.name)) for info in space.parameters):
            seen = f"{self._run.settings.unit}s {first} and {last} hold the same weights."
            remedy = "let the collector watch the very network that the optimizer moves, and not a copy of it."
            self.findings.append(Finding("checkpoint", seen, "weights that training moved.", remedy))
        return states

    def _are_alike_in_other_calls(self, states: Mapping[int, AlignedState]) -> bool:
        """Calls callback_fn again, as another worker does, and compares samples and the last loss."""
        number = self._measured.last
        last = {number: states[number]}
        how = {**self._chosen, "plan": self._measured.description.plan}

        def measured(callback_fn: Callable[[], Any], seed: int) -> MeasuredRun:
            with warnings_as_texts(), other_random_numbers(seed):
                return measure_run(callback_fn, last, how)

        other = measured(self._callback_fn, 1)
        if _samples_of(other.description) != _samples_of(self._measured.description):
            passes: list[Any] = []
            with contextlib.suppress(LandscapeError):  # what can be read, or sent to a worker, only once
                passes = [_samples_of(measured(lambda: self._result, seed).description) for seed in (2, 3)]
            self.findings.append(_OTHER_PASS if passes and passes[0] != passes[1] else _OTHER_CALL)
            return False
        here, there = ({"loss": item.main[number].mean} for item in (self._measured, other))
        what = f"the checkpoint of {self._run.settings.unit} {number}"
        check_same_values(what, here, there, "with the network and the loss of another call of callback_fn")
        return True


# So PyTorch warns.
_BROADCAST = re.compile(r"Using a target size \(torch\.Size\(\[(.*?)\]\)\) .* input size \(torch\.Size\(\[(.*?)\]\)\)")


def _of_broadcast(targets: str, outputs: str) -> Finding:
    return Finding(
        "callback_fn",
        f"its loss compares outputs of shape [{outputs}] with targets of shape [{targets}], and so each with several.",
        "outputs and targets of the same shape.",
        "give them one shape, as in training, such as targets[:, None] for outputs of one column.",
    )


_OTHER_PASS = Finding(
    "samples",
    "two passes over the data set of one call of callback_fn gave different samples.",
    "the same samples in each pass, so that points of a landscape can be compared.",
    "switch random augmentation, noise and random crops off in callback_fn's data set; use the transforms with which "
    "you evaluate.",
)
_OTHER_CALL = Finding(
    "callback_fn",
    "two calls of callback_fn returned different samples.",
    "the same samples from each call, because each worker, and each later command, calls it anew.",
    "seed what it draws, such as random_split(..., generator=torch.Generator().manual_seed(0)); and for the split of "
    "the training, seed it there in the same way.",
)
_RAISED: Mapping[type[Exception], tuple[str, str, str]] = {
    CheckpointError: (
        "checkpoint",
        "checkpoints that training wrote, of callback_fn's network.",
        "let callback_fn return the network that was trained; restore what is damaged from a copy; train again "
        "where it diverged.",
    ),
    SamplesError: (
        "samples",
        "a data set with the same labelled samples in each pass.",
        "mend callback_fn's data set; if its samples change, switch shuffling and random augmentation off.",
    ),
    NondeterministicLossError: (
        "loss",
        "one loss for the same weights.",
        "switch off what draws random numbers in eval mode, such as functional.dropout(..., training=True); where a "
        "loss draws on purpose, pass seed_each_point=True to what measures too.",
    ),
    FrozenNetworkError: (
        "network",
        "parameters that training moved.",
        "set requires_grad=True on them in callback_fn.",
    ),
    Exception: ("callback_fn", "a callback_fn whose network, loss and data set can be measured.", "mend callback_fn."),
}


def _trainable(space: WeightSpace, trained: list[str] | None) -> Iterator[Finding]:
    """Yields a finding where training moved other tensors than planes do."""
    known = {name for tensor in space.parameters for name in (tensor.name, *tensor.aliases)}
    if trained is None or not known.issuperset(trained):
        return
    moved = [info.name for info in space.parameters if {info.name, *info.aliases} & {*trained}]
    more = [info.name for info in space.trainable if info.name not in moved]
    fewer = [info.name for info in space.parameters if info.name in moved and not info.trainable]
    for names, what in ((more, "are trainable in callback_fn, but were frozen in training"),
                        (fewer, "are frozen in callback_fn, but training moved them")):  # fmt: skip
        if names:
            remedy = "set requires_grad in callback_fn as in training."
            yield Finding(
                "network", f"{some_names(names)} {what}.", "planes along the weights that training moved.", remedy
            )


def _samples_of(description: EvaluatorDescription) -> list[Any]:
    return [identity_of(description, ("samples",)), *map(data_set_json, description.datasets)]


def _run_facts(run: RunDirectory, there: Sequence[int], numbers: Sequence[int]) -> Iterator[Fact]:
    unit = run.settings.unit
    yield Fact("run", f"{run.path} has {len(there)} checkpoints; looked at: {unit}s {', '.join(map(str, numbers))}.")
    wanted = tuple(dict.fromkeys(number for interval in run.settings.intervals for number in interval))
    if missing := run.missing(wanted):
        yield Fact("run", f"no checkpoints of {unit}s {some_names(missing)}; landscapes are drawn without them.")


def _network_facts(space: WeightSpace, buffers: str) -> Iterator[Fact]:
    frozen = [tensor.name for tensor in space.parameters if not tensor.trainable]
    still = f" Frozen, so that no plane moves them: {some_names(frozen)}." if frozen else ""
    yield Fact("network", f"{space.network} has {space.dimension:,} weights that planes move.{still}")
    if space.buffers:
        names = some_names([tensor.name for tensor in space.buffers])
        yield Fact("network", f"buffers: {names}; {_MEANINGS.get(buffers, buffers)}.")
    shared = [" = ".join((tensor.name, *tensor.aliases)) for tensor in space.tensors if tensor.aliases]
    if shared:
        yield Fact("network", f"shared weights, which move as one: {'; '.join(shared)}.")


def _sample_facts(measured: MeasuredRun, result: Any) -> Iterator[Fact]:
    description, options = measured.description, measured.description.options
    how = "the first in the data set's order" if options.samples == "first" else f"random, seed {options.seed}"
    wanted = options.num_samples
    for place, (name, count) in enumerate(sample_counts(description)):
        there = samples_in(result, name)
        of = f" of {there:,}" if there else ""
        asked = wanted.get(name) if isinstance(wanted, Mapping) else wanted
        if there == count:
            which = ", which are all"
        elif asked == count:
            which = f" ({how})"
        else:
            which = " (those that its loader visits)" if there else ""
        main = " It is the main data set." if name and not place else ""
        yield Fact("samples", f"{repr(name) + ': ' if name else ''}{count:,}{of} are read{which}.{main}")
    mean = "a mean over the samples"
    if measured.is_sum:
        mean = "a sum over the samples, so that it is larger the more of them are read"
    elif measured.belongs_to_batches:
        mean = "it belongs to its batches, which are kept as the data set gives them"
    elif measured.weights is not None:
        low, high = float(np.min(measured.weights)), float(np.max(measured.weights))
        mean += ", all count alike" if low == high else f", which count from {low:g} to {high:g} each"
    yield Fact("loss", f"{mean}.")
    yield from (Fact("samples", note) for note in description.notes)


def logged_facts(compared: Comparison | None, training: RecordedTraining, unit: str) -> Iterator[Fact]:
    if not (count := len(training.losses)):
        texts = [
            "none can be read (the run logged none, lies behind a URL, or TensorBoard is missing), so the measured "
            "losses were compared with nothing: another data set, normalization or loss cannot be noticed."
        ]
    elif compared is None or not compared.decides:
        texts = [
            f"{count} were logged, which is too few, or they belong to no two checkpoints with a finite loss, or are "
            "sums over batches whose size nobody recorded: check cannot tell whether this is the loss that was trained."
        ]
    else:
        of_set = f"on {compared.data_set!r}, " if compared.data_set else ""
        texts = [f"{of_set}{row.text(unit)}." for row in compared.trained]
        if compared.data_set:
            texts.append(
                "those of the main data set, which pictures show first, do not fit: as it should be if training never "
                f"had its samples, but those of {compared.data_set!r}."
            )
        if compared.fits and _WIDE <= compared.least_factor < math.inf:
            times = f"{compared.least_factor:.2g}"
            texts.append(f"these ranges are wide: a loss up to {times} times as high as logged would not be noticed.")
        if compared.is_lower:
            texts.append(
                "the measured losses are lower. Dropout, augmentation, smoothed labels or a penalty in the training's "
                "loss do that, and so do other samples or another loss: check cannot tell which it is."
            )
    yield from (Fact("logged losses", text) for text in texts)
