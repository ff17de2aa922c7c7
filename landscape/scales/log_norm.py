"""Matplotlib's logarithmic colours, for values that span all positive numbers too; loads matplotlib."""

from typing import Any

import numpy as np
from matplotlib.colors import LogNorm

# Of ten: two such numbers have a finite sum.
_LARGEST_EXPONENT = 300


class WideLogNorm(LogNorm):
    """Logarithmic colours whose bar may be so long that a value its own length beyond its end would be infinite."""

    def inverse(self, value: Any) -> Any:
        """Returns the values of shares from 0 to 1; a bar's pointed ends ask for -1 and 2."""
        low, high = (np.log10(float(end or np.nan)) for end in (self.vmin, self.vmax))
        return super().inverse(np.minimum(value, (_LARGEST_EXPONENT - low) / (high - low)))
