"""Every way a command can end badly, as one line of cause, one of remedy, and an exit code."""

from __future__ import annotations

import re
import sys
import traceback

import typer

from headlab.base.errors import HeadlabError

INTERRUPTED = 130
_NAMES = "text_column|label_column|train_data|batch_size|max_length|trust_remote_code"
OPTION = re.compile(rf"option '({_NAMES})'")
ARGUMENTS = re.compile(rf"(?<![\w'./-])({_NAMES})(?![\w'/]|\.\w)")


def report(error: BaseException, *, debug: bool) -> int:
    """Print the error to stderr and return the exit code; the traceback only where `debug`."""
    if isinstance(error, typer.Exit):
        return int(error.exit_code)
    if debug and not isinstance(error, SystemExit):
        traceback.print_exception(error)
    if isinstance(error, SystemExit):
        return error.code if isinstance(error.code, int) else 1
    if isinstance(error, KeyboardInterrupt | typer.Abort):
        _say("Interrupted.", "Finished rows are kept; the same command goes on from there.")
        return INTERRUPTED
    if isinstance(error, BrokenPipeError):  # the reader of stdout has seen enough, as in `headlab list | head`
        sys.stderr.close()
        return 0
    cause, remedy, code = describe(error)
    _say(cause, remedy)
    return code


def describe(error: BaseException) -> tuple[str, str, int]:
    """Cause, remedy and exit code of an error."""
    if isinstance(error, HeadlabError):
        return _with_options(error.cause), _with_options(error.remedy), error.exit_code
    if _is_wrong_usage(error):
        context = getattr(error, "ctx", None)
        command = context.command_path if context else "headlab"
        return error.format_message(), f"See `{command} --help`.", 2  # type: ignore[attr-defined]
    if isinstance(error, MemoryError) or "out of memory" in str(error).lower():
        return f"Out of memory: {_one_line(error)}", "Lower --batch-size, --max-length or --limit.", 1
    if isinstance(error, OSError) and error.filename:
        return f"{error.strerror}: {error.filename}", "Check that the path exists, is writable and has room.", 1
    return f"{type(error).__name__}: {_one_line(error)}", "Run it again with --debug for the traceback.", 1


def _with_options(text: str) -> str:
    """Python's arguments as the options of the command line: `with text_column` as `with --text-column`.

    Names in quotes are somebody's own, such as columns of a file, but for `option 'text_column'`.
    """
    return ARGUMENTS.sub(lambda found: "--" + found.group(1).replace("_", "-"), OPTION.sub(r"option \1", text))


def _is_wrong_usage(error: BaseException) -> bool:
    """Typer carries its own copy of click or imports it, by version, so the class is known by name only."""
    return any(base.__name__ == "ClickException" for base in type(error).__mro__)


def _one_line(text: object) -> str:
    return " ".join(str(text).split())


def _say(cause: str, remedy: str) -> None:
    print(f"Error: {_one_line(cause)}", file=sys.stderr)
    if remedy:
        print(f"Remedy: {_one_line(remedy)}", file=sys.stderr)
