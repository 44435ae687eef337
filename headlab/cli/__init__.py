"""The command line: the only place that prints and exits."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

import headlab


def run(arguments: Sequence[str]) -> int:
    """Run one command and return its exit code.

    0 done; 1 the run failed; 2 wrong usage; 3 finished, but a proof failed; 130 interrupted, finished rows kept.
    """
    from headlab.cli import errors
    from headlab.cli.application import application

    debug = "--debug" in arguments
    _quiet_libraries(debug)
    if "--version" in arguments:
        print(headlab.__version__)
        return 0
    try:
        code = application()(args=list(arguments), prog_name="headlab", standalone_mode=False)
        sys.stdout.flush()
    except BaseException as error:
        return errors.report(error, debug=debug)
    if code == errors.INTERRUPTED:  # typer turns Ctrl-C into a return value
        return errors.report(KeyboardInterrupt(), debug=False)
    return code if isinstance(code, int) else 0


def _quiet_libraries(debug: bool) -> None:
    """Keep the progress bars and notices of the libraries below off the screen; `--debug` lets them through."""
    os.environ.setdefault("MPLBACKEND", "Agg")
    if not debug:
        os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
        os.environ.setdefault("TQDM_DISABLE", "1")
        os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
        os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
