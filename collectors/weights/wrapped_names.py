"""The names of tensors in checkpoints of other tools: what wrappers, trainers and averages put before them."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from ..errors import CheckpointError
from ..networks.weight_space import canonical_name, extra_states_left_out, is_extra_state, some_names, wrappers_in

COUNT_OF_AVERAGES = "n_averaged"
"""The buffer that ``torch.optim.swa_utils.AveragedModel`` adds to those of the network that it averages."""
# What most LightningModules call the network that they train.
_OF_LIGHTNING = ("model.", "network.", "net.")
# The names that torch.nn.utils.weight_norm and spectral_norm give, and those of their parametrizations.
_PARAMETRIZED = ({"g": "original0", "v": "original1"}, {"orig": "original", "u": "0._u", "v": "0._v"})
_ADAPTER = re.compile(r"(.+)\.lora_(?:A|B|embedding_A|embedding_B|magnitude_vector)(?:\.|$)")


@dataclass(frozen=True)
class PlainNames:
    """The names that tensors get, each with the checkpoint's own (``held``); what was removed or left out, in words."""

    held: Mapping[str, str]
    said: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()


def plain_names(
    label: str, names: Iterable[str], *, strip_prefix: str | None = None, of_lightning: bool = False
) -> PlainNames:
    """Returns names as the plain network has them, without those of wrappers, averages and a LightningModule."""
    given = [*names]
    extra = [name for name in given if is_extra_state(name)]
    left_out = (extra_states_left_out(extra),) if extra else ()
    found = {name: name for name in given if not is_extra_state(name)}
    said: list[str] = []
    if strip_prefix:
        found, said = _stripped(label, found, strip_prefix if strip_prefix.endswith(".") else f"{strip_prefix}.")
    averaged = found.keys() - {COUNT_OF_AVERAGES}
    if COUNT_OF_AVERAGES in found and averaged and all(name.startswith("module.") for name in averaged):
        del found[COUNT_OF_AVERAGES]
        said.append("'n_averaged' is left out: the weights are those of an AveragedModel.")
    result: dict[str, str] = {}
    removed: dict[str, None] = {}
    for name, held in found.items():
        short = canonical_name(name)
        _check_text(label, held)
        if short in result:
            raise CheckpointError(
                f"checkpoint {label} has two tensors called {short!r} once wrapper prefixes are removed."
            )
        if short != name:
            removed |= dict.fromkeys([name.removesuffix(short)] if name.endswith(short) else wrappers_in(name))
        result[short] = held
    said += [f"{prefix!r} is removed from the tensors' names: a wrapper added it." for prefix in removed]
    # A name given by hand says what is wanted, and nothing more is guessed.
    shared = next((item for item in _OF_LIGHTNING if any(name.startswith(item) for name in result)), None)
    if of_lightning and shared and not strip_prefix:
        others = [name for name in result if not name.startswith(shared)]
        if others:
            # They may belong to the network that is measured, which is not known here.
            said.append(
                f"{some_names(others)} lie beside {shared!r}: they are left out where the network under {shared!r} is "
                f"measured alone, and now by strip_prefix={shared!r}."
            )
        else:
            result = {name.removeprefix(shared): held for name, held in result.items()}
            said.append(f"{shared!r} is removed from the tensors' names: it is the network inside a LightningModule.")
    return PlainNames(result, tuple(said), left_out)


def check_not_adapters_alone(label: str, names: Collection[str]) -> None:
    """Checks that LoRA's adapters lie beside the layers to which they belong."""
    layers = {match[1] for name in names if (match := _ADAPTER.match(name))}
    if layers and not any(f"{layer}{end}" in names for layer in layers for end in (".weight", ".base_layer.weight")):
        raise CheckpointError(
            f"checkpoint {label} holds LoRA adapters alone ({some_names(names)}), without the network that they "
            "change. Merge them into it, for example with merge_and_unload() of peft, and save the whole network; or "
            "collect the next training with a SummaryCollector, which saves what is frozen once."
        )


def fitting_names(names: Collection[str], known: Collection[str]) -> dict[str, str] | None:
    """Returns the names by the network's, where all have one prefix ("model.") more or less, or none; else None."""
    one = next(iter(names), "")
    parts = one.split(".")
    for count in range(len(parts)):
        prefix = "".join(f"{part}." for part in parts[:count])
        if all(name.startswith(prefix) and name.removeprefix(prefix) in known for name in names):
            return {name.removeprefix(prefix): name for name in names}
    for prefix in sorted({name.removesuffix(one) for name in known if one and name.endswith(f".{one}")}):
        if all(prefix + name in known for name in names):
            return {prefix + name: name for name in names}
    return None


def names_inside(label: str, names: Collection[str], wanted: Sequence[Collection[str]]) -> dict[str, str] | None:
    """Returns the names by the network's, where these are under one prefix and others beside them; else None."""
    known = {name for some in wanted for name in some}
    found: dict[str, dict[str, str]] = {}
    for first in wanted[0] if wanted else ():
        for prefix in {name.removesuffix(first) for name in names if name.endswith(f".{first}")}:
            # Lightning's "model." beside "criterion.". Numbers, and words behind words, are before the names of layers.
            if not prefix[:-1].isidentifier():
                continue
            inside = {name.removeprefix(prefix): name for name in names if name.startswith(prefix)}
            if known.issuperset(inside) and all(any(name in inside for name in some) for some in wanted):
                found[prefix] = inside
    if len(found) > 1:
        raise CheckpointError(
            f"{label} holds the network's tensors several times, under {some_names(sorted(found))}. Choose one: give a "
            "dictionary of its tensors, or import the checkpoints with strip_prefix."
        )
    return next(iter(found.values()), None)


def parametrized_names(names: Collection[str]) -> dict[str, str]:
    """Returns names by those that parametrizations give, where ``weight_norm`` and ``spectral_norm`` gave theirs."""
    found = {}
    for name in names:
        stem, _, end = name.rpartition("_")
        layer, dot, key = stem.rpartition(".")
        now = next((now for now in _PARAMETRIZED if end in now and all(f"{stem}_{it}" in names for it in now)), None)
        found[name if now is None else f"{layer}{dot}parametrizations.{key}.{now[end]}"] = name
    return found


def _stripped(label: str, names: Mapping[str, str], prefix: str) -> tuple[dict[str, str], list[str]]:
    kept = {name.removeprefix(prefix): held for name, held in names.items() if name.startswith(prefix)}
    if not kept:
        # Typed as the plain network has it, under wrappers that come off by themselves.
        plain = canonical_name(prefix)
        short = {canonical_name(name): held for name, held in names.items()}
        kept = {name.removeprefix(plain): held for name, held in short.items() if name.startswith(plain)}
    if not kept:
        beginnings = dict.fromkeys(f"{name.partition('.')[0]}." if "." in name else name for name in names)
        raise CheckpointError(
            f"checkpoint {label} has no tensor whose name begins with {prefix!r}; its names begin with "
            f"{some_names(beginnings)}. Choose another strip_prefix, or leave it out."
        )
    others = [name for name in names.values() if name not in {*kept.values()}]
    said = f"{prefix!r} is removed from the tensors' names, as asked for."
    left = f"left out, without {prefix!r} before their names: {some_names(others)}."
    return kept, [said, left] if others else [said]


def _check_text(label: str, name: str) -> None:
    try:
        name.encode()
    except UnicodeEncodeError as error:
        raise CheckpointError(
            f"checkpoint {label} has a tensor called {name!r}, which is no Unicode text; rename it."
        ) from error
