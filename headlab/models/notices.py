"""What transformers prints while it reads and writes checkpoints."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from huggingface_hub.utils import enable_progress_bars
from transformers.utils import logging


@contextmanager
def quiet(*, local: bool = True) -> Iterator[None]:
    """Keep transformers' progress bars and its reports of unused weights to itself; settings are put back.

    Bars of downloads stay where the checkpoint is not `local`.
    """
    level, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    if bars and not local:
        enable_progress_bars()  # the hub client's, which the line above switched off as well
    try:
        yield
    finally:
        logging.set_verbosity(level)
        if bars:
            logging.enable_progress_bar()
