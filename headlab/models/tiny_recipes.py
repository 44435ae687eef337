"""What a model type needs beyond the general rules to become tiny.

By model type: values for its configuration (a dictionary under a part's name: values for that part). `from` are the
arguments of the default configuration to start from, `parts` the model types of the parts of a composed model.
"""

from __future__ import annotations

from typing import Any

RECIPES: dict[str, dict[str, Any]] = {
    "encoder-decoder": {"parts": {"encoder": "bert", "decoder": "bert"}},
}
