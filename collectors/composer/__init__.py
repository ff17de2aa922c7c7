"""MosaicML Composer: its trainings are recorded, and callbacks of either side run in the other's loop."""

try:
    import composer as composer
except ImportError as error:
    raise ImportError(
        f"Composer cannot be imported ({error}); install it with pip install 'summary-landscape[composer]'."
    ) from error

from .from_composer import FromComposer as FromComposer
from .in_composer import InComposer as InComposer
from .in_composer import SummaryCollector as SummaryCollector
