"""What all tests share: executed shape annotations."""

import sys
from pathlib import Path

from jaxtyping import install_import_hook

sys.path[:0] = [str(Path(__file__).parent / folder) for folder in ("support", "frameworks")]

install_import_hook(["collectors", "workers", "landscape"], "shape_checks.only_shapes")
