"""Where a loss is measured: evaluators (one for each framework) and pools (this process, several, or Ray)."""

import lazy_loader

# Importing a name must not import a framework that another name needs. What there is, __init__.pyi says.
__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
