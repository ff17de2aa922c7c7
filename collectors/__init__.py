"""Phase 1, inside training: callbacks, and the run directory that they leave behind."""

import lazy_loader

# The names stand in __init__.pyi. Each is imported when it is used, because it may need a framework that others do not.
__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
