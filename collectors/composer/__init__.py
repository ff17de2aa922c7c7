"""MosaicML Composer: its trainings are recorded, and callbacks of either side run in the other's loop."""

from .collector import SummaryCollector as SummaryCollector
from .from_composer import FromComposer as FromComposer
from .in_composer import InComposer as InComposer
