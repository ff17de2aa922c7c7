"""Files of other programs: one file for each format, both ways."""

from .exchange import FOREIGN_FORMATS as FOREIGN_FORMATS
from .exchange import FORMATS as FORMATS
from .exchange import export_landscape as export_landscape
from .exchange import import_landscape as import_landscape
