"""What each attention head of a transformer looks at, whether it matters, and whether it can go."""

from __future__ import annotations

import lazy_loader

__version__ = "0.2.0"

# The names are those of __init__.pyi, imported when they are first used: `import headlab` loads neither torch nor
# matplotlib.
__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
