"""For tests of headlab and of what users add to it: contract checks for labels, scores, tasks and metrics.

    from headlab.testing import check_label
    check_label(MY_LABEL)

Each check raises AssertionError with a sentence that says which rule is broken.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
