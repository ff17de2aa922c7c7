"""What is wrong where measured losses are not those that training logged: what mends them, or what else differs."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from collectors.run_directory.metadata import RunMetadata
from collectors.summary.recorded_values import RecordedTraining
from collectors.weights.aligned import AlignedState

from .diagnosis import ComparedLoss, Fact, Finding
from .measuring import Comparison, MeasuredRun, compare, loss_of, measure_run, samples_in
from .trials import Trial, trials_of, variance_factors, what_mends

# How far a ratio of losses may be from the number of samples in a batch.
_OF_RATIO = 0.25
_MUCH = 5
# Statistics that lag behind the weights were up to 2.1 times off at the end of a training, those of other inputs or
# another forward at least 2.8 times at some layer.
_OF_VARIANCE = 2.5
_AROUND = 3  # logged losses


@dataclass(frozen=True)
class LossCheck:
    callback_fn: Callable[[], Any]
    result: Any  # what it returned
    chosen: Mapping[str, Any]  # the options of the check
    states: Mapping[int, AlignedState]
    metadata: RunMetadata
    training: RecordedTraining
    measured: MeasuredRun

    @property
    def unit(self) -> str:
        return self.metadata.settings.unit

    @property
    def _steps_of(self) -> int | None:
        """How many steps a checkpoint's number counts; None where nobody recorded it."""
        return 1 if self.unit == "step" else self.metadata.step_per_epoch

    def compare(self, factor: float | None = None) -> Comparison | None:
        """Returns the comparison of the data set that fits, or of the main one; None where nothing can be compared."""
        # The factor says how many times as large as a sample's loss a batch's is; None: as callback_fn's loss has it.
        steps_of = self._steps_of
        if steps_of is None:
            return None
        if factor is None:
            factor = self._factor
        steps = {number: number * steps_of for number in self.states}
        logged = self.training.losses
        found = [
            replace(compare(losses, steps, logged, factor), data_set=name if place else "")
            for place, (name, losses) in enumerate(self.measured.losses.items())
        ]
        best = next((item for item in found if item.fits), found[0])
        # Where nothing says how large a batch was, sums can be told from means alone.
        return best if not self._is_of_unknown_batches or _is_mean(best) else None

    @property
    def _sees_few_batches(self) -> bool:
        steps = self.metadata.step_per_epoch or 0
        return steps > 2 and len({step % steps for step in self.training.losses}) <= 2

    @property
    def _factor(self) -> float:
        return float(self.training.batch_size or 1) if self.measured.is_sum else 1.0

    @property
    def _is_of_unknown_batches(self) -> bool:
        return self.measured.is_sum and self.training.batch_size is None

    def findings(self, found: Comparison) -> Sequence[Finding | Fact]:
        """Returns what is wrong; facts in place of what only looks wrong."""
        if not found.decides:
            return []
        if self._is_of_unknown_batches:
            return [self._another_sum(found.rows[-1], "that of a sample fits")]
        if not found.fits and (of_scale := self._scale(found)) is not None:
            return [of_scale]
        if found.is_higher:
            return [self._higher(found)]
        if found.is_lower and (of_ratio := self._lower(found)) is not None:
            return [of_ratio]
        # Near zero no single loss is lower for sure. Dropout alone makes a logged loss a few times as high as the
        # measured one, whatever losses are called.
        row = max(found.trained, key=lambda item: item.measured / item.logged if item.logged > 0 else math.inf)
        if row.logged <= 0 or _MUCH * row.measured > row.logged:
            return []
        seen = (
            f"at all checkpoints the measured loss is less than a fifth of what training logged: at most "
            f"{row.measured / row.logged:.2g} of it."
        )
        expected = f"about {row.logged:.3g} at {self.unit} {row.number}, instead of {row.measured:.3g}."
        texts = [f"{seen} {clue.text}" for clue in self.clues() if clue.about == "loss"]
        return [Finding("loss", text, expected, "return the loss of the training.") for text in texts]

    def not_finite(self) -> Iterator[Finding]:
        """Yields a finding where the loss is NaN or infinite, though what training logged around it is finite."""
        steps_of, logged = self._steps_of, self.training.losses
        if not steps_of:
            return
        losses = self.measured.main.items()
        lost = [number for number, loss in losses if number <= self.measured.last and not math.isfinite(loss.mean)]
        for number in lost:
            place = number * steps_of
            around = sorted(logged, key=lambda step: abs(step - 1 - place))[:_AROUND]
            if around and all(math.isfinite(logged[step]) for step in around):
                seen = f"the measured loss is NaN or infinite at {self.unit} {number}; "
                seen += f"training logged {logged[around[0]]:.3g} there."
                remedy = "look for samples that are NaN, and for what callback_fn's network or loss divides by."
                yield Finding("loss", seen, "a finite loss.", remedy)
                return

    def clues(self) -> list[Fact]:
        """Returns what else differs from what training recorded; that need not be wrong."""
        found = []
        size, known = self._size, self.training.samples
        if size is not None and known not in (None, size):
            found.append(Fact("samples", f"Training had {known:,} samples, callback_fn's data set has {size:,}."))
        before, now = self.metadata.network.get("name"), self.measured.description.space.network
        if before not in (None, now) and not self.metadata.imported:  # whose name is how a user calls it
            found.append(Fact("network", f"Training had the network {before}, callback_fn has {now}."))
        loss, before = loss_of(self.result), self.training.loss_function
        now = getattr(loss, "__name__", type(loss).__name__)
        if loss is not None and before not in ("", now):
            found.append(Fact("loss", f"Training had the loss {before}, callback_fn has {now}."))
        return found

    @property
    def _size(self) -> int | None:
        return samples_in(self.result, next(iter(self.measured.losses)))

    def _higher(self, found: Comparison) -> Finding | Fact:
        row, count = found.rows[-1], sum(item.is_higher for item in found.trained)
        seen = (
            f"at {count} of {len(found.trained)} checkpoints the measured loss is higher than training logged, such as "
            f"{row.measured:.3g} at {self.unit} {row.number}."
        )
        expected = f"a loss {row.interval} there"
        description = self.measured.description
        read = (description.datasets or (description,))[0].num_samples
        is_part = (self._size or read) > read

        how = {**self.chosen, "plan": description.plan}

        def misfit(trial: Trial) -> float:
            measured = measure_run(trial.callback_fn, self.states, {**how, **trial.options})
            after = replace(self, measured=measured).compare()
            return after.misfit if after is not None and after.mends(found) else math.inf

        trials = trials_of(self.callback_fn, self.result, description.space, self.chosen, is_part=is_part)
        mended = what_mends(trials, misfit)
        clues = self.clues()
        seen = " ".join([seen, *(clue.text for clue in clues)])
        if any("buffers" in trial.options for trial in mended):
            factors = variance_factors(self.callback_fn, self.states[self.measured.last], how)
            far = [(name, factor) for name, factor in factors.items() if not factor <= _OF_VARIANCE]
            if factors and not far and len(mended) == 1:
                lag = "Running statistics lag behind weights that move fast; those of callback_fn's data are near them."
                return Fact("network", f'{seen} {lag} With buffers="recalibrate" the losses fit.')
            for name, factor in far[:1]:
                seen += f" The variance that reaches layer {name!r} is {factor:,.1f} times off the collected one."
        if mended:
            # One mistake may look like another: statistics of normalization layers hide how inputs were scaled.
            seen = f"{seen} But {'. Or: '.join(item.seen for item in mended)}."
            expected = f"{expected}; {'. Or: '.join(item.expected for item in mended)}."
            return Finding(mended[0].about, seen, expected, " Or: ".join(item.remedy for item in mended))
        about = "samples" if found.does_not_fall or any(clue.about == "samples" for clue in clues) else "loss"
        remedy = (
            "give callback_fn the samples of the training (not a held-out part), its normalization of inputs, its loss "
            "and its network's forward; check cannot tell which of them differs."
        )
        if found.does_not_fall:
            first = found.rows[0]
            seen += (
                f" From {self.unit} {first.number} on the measured loss does not fall ({first.measured:.3g} to "
                f"{row.measured:.3g}), but the logged one does."
            )
            remedy = (
                "look whether inputs and targets are in the same order and of the training's data, and whether the "
                "loss and the network's forward are those of the training."
            )
        elif about == "loss" and (ratio := self._ratio(found)) is not None:
            seen += f" Divided by {ratio:.2g}, it fits at all of them."
            remedy = (
                f"look whether training divides its loss by {ratio:.2g} before it logs it, as loops do that accumulate "
                f"gradients: then nothing is wrong. Otherwise {remedy}"
            )
        if self._sees_few_batches and not found.does_not_fall:
            seen += " All logged losses are of the same one or two batches of each epoch."
            alike = (
                "look first whether training shuffles: without that these batches always have the same samples, and "
                "nothing may be wrong; log losses at an interval that does not divide the steps of an epoch "
                "(collect_freq)."
            )
            if all(item.measured < _MUCH * item.logged for item in found.trained):
                return Fact("logged losses", f"{seen} Check cannot tell whether anything is wrong: {alike}")
            remedy = f"{alike} Otherwise {remedy}"
        if self.measured.belongs_to_batches:
            remedy = f"give callback_fn's loader the batch size of the training, on which this loss depends; {remedy}"
        return Finding(about, seen, f"{expected}.", remedy)

    def _ratio(self, found: Comparison) -> float | None:
        """Returns how many times as high as logged the loss is, where that is the same all along; None elsewhere."""
        logged = [row.logged for row in found.rows]
        # Of a loss that hardly moved, any difference is a factor.
        if min(logged) <= 0 or max(logged) < 2 * min(logged):
            return None
        ratio = float(np.median([row.measured / row.logged for row in found.rows]))
        divided = self.compare(self._factor / ratio)
        if divided is None or not divided.mends(found):
            return None
        return None if any(row.is_higher or row.is_lower for row in divided.rows) else ratio

    def _lower(self, found: Comparison) -> Finding | None:
        """Returns a finding where training logged many times the loss, also before it began; dropout acts later."""
        ratio, row = self._ratio(found), found.rows[-1]
        if ratio is None or _MUCH * ratio > 1 or found.rows[0].number != found.first:
            return None
        return Finding(
            "loss",
            f"at all checkpoints training logged about {round(1 / ratio):,} times the measured loss, such as "
            f"{row.logged:.3g} at {self.unit} {row.number}, where {row.measured:.3g} was measured.",
            f"a loss {row.interval} there.",
            "look whether the loss of the training is a sum over the samples of a batch, is multiplied by a gradient "
            "scaler before it is logged, or is another one; return that loss, and log it without a scaler.",
        )

    def _scale(self, found: Comparison) -> Finding | None:
        batch, row = self.training.batch_size or 1, found.rows[-1]
        here, there = (float(batch), 1.0) if self.measured.is_sum else (1.0, float(batch))
        ratios = [row.measured / row.logged for row in found.trained if row.logged > 0 and row.measured > 0]
        near = [abs(math.log(ratio * there / here)) < math.log(1 + _OF_RATIO) for ratio in ratios]
        other = self.compare(there)
        if batch == 1 or other is None or not other.fits or not sum(near) * 2 >= len(found.trained):
            return None
        return self._another_sum(row, f"those of a batch of {batch} differ by that factor")

    def _another_sum(self, row: ComparedLoss, why: str) -> Finding:
        ours, theirs = ("sum", "mean") if self.measured.is_sum else ("mean", "sum")
        return Finding(
            "loss",
            f"callback_fn's loss is a {ours} over samples, but training logged a {theirs}: {why}, such as "
            f"{row.measured:.3g} at {self.unit} {row.number}.",
            f"a loss {row.interval} there.",
            f'build the loss with reduction="{theirs}", as in training.',
        )


def _is_mean(found: Comparison) -> bool:
    """Returns whether what was logged is the mean of what was measured, and no sum of several samples."""
    measured, logged = (sum(getattr(row, name) for row in found.trained) for name in ("measured", "logged"))
    return found.fits and measured < 2 * logged < 4 * measured
