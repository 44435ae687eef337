"""What is looked at: checkpoints, the texts they are shown, and the small models and texts of the demo."""

import lazy_loader

# On first use: most of these names need torch.
__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
