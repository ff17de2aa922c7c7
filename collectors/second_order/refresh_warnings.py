"""What a refresh of the factors has to say, once for each weight."""

from __future__ import annotations

import warnings
from collections.abc import Iterable

# From here: Thor._refresh, Thor.step, PyTorch's two wrappers of it, and who called those.
_USERS_CALL = 6


class RefreshWarnings:
    """Warns of weights that have no factors. Each is named once: in a training that diverges it is all of them."""

    def __init__(self) -> None:
        self._failed: set[str] = set()
        self._plain: set[str] = set()

    def of_failed(self, step: int, reasons: dict[str, str]) -> None:
        new = {name: reason for name, reason in reasons.items() if name not in self._failed}
        self._failed.update(new)
        if new:
            which = ", ".join(f"{reason} of {name}" for name, reason in new.items())
            warnings.warn(
                f"at step {step} factors cannot be inverted: {which}. The inverses of an earlier refresh stay, or "
                "without one the plain gradient; this is said once for each weight. If the loss grows, use a larger "
                "damping, a smaller learning rate or frequency, or enable_clip_grad=True.",
                UserWarning,
                stacklevel=_USERS_CALL,
            )

    def of_plain(self, names: Iterable[str]) -> None:
        """Warns of weights that keep their plain gradient though they are matrices or more."""
        new = [name for name in names if name not in self._plain]
        self._plain.update(new)
        if new:
            warnings.warn(
                f"Thor uses the plain gradients of {new}: no layer records for them. Treated are Linear, Conv2d of one "
                "group and Embedding whose weight is their own and whose forward is called.",
                UserWarning,
                stacklevel=_USERS_CALL,
            )
