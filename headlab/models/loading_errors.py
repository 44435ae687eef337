"""What goes wrong inside transformers and the hub's client, told in one line of cause and one of remedy."""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from contextlib import contextmanager

from headlab.base.errors import CheckpointError, HeadlabError
from headlab.models.demo.checkpoints import demo_models


@contextmanager
def translated(name: str, *, local: bool) -> Iterator[None]:
    """Turn any failure of opening `name` into a CheckpointError.

    Anything may be raised here, since a checkpoint's files decide what code runs: hence the broad clause.
    """
    try:
        yield
    except HeadlabError:
        raise
    except Exception as error:
        raise _explained(name, error, local) from error


def _explained(name: str, error: Exception, local: bool) -> CheckpointError:
    chain = _chain(error)
    kinds = {type(each).__name__ for each in chain}
    text = " ".join(str(each) for each in chain)
    if "trust_remote_code" in text:
        return CheckpointError(
            f"{name!r} runs code that comes with the checkpoint.", "Where you trust it, add --trust-remote-code."
        )
    if kinds & {"GatedRepoError"} or "gated repo" in text:
        return CheckpointError(f"{name!r} is gated on the hub.", "Ask for access there, then log in: hf auth login.")
    if "RevisionNotFoundError" in kinds or "not a valid git identifier" in text:
        return CheckpointError(f"{name!r} has no such revision on the hub.", "Give a branch, a tag or a commit.")
    if "RepositoryNotFoundError" in kinds or "not a local folder and is not a valid model identifier" in text:
        return CheckpointError(f"There is no model {name!r} on the hub, and no such folder.", _hint(name))
    if not local and ("safetensors" in text and "does not appear to have a file named" in text):
        return CheckpointError(
            f"{name!r} has no safetensors on the hub, and pickles can run code.",
            "Convert it where you trust it: load with transformers, save_pretrained, then name the folder.",
        )
    if not local and _is_network(kinds, text):
        return CheckpointError(
            f"{name!r} is not in the local cache of the hub, and the hub cannot be reached.",
            f"Connect to the network (and unset HF_HUB_OFFLINE), name a folder, or try {_nearest_demo(name)}.",
        )
    if "quantiz" in text:
        return CheckpointError(
            f"{name!r} is quantised, and its weights cannot be read: {_first_line(error)}",
            "Open the checkpoint that it was made from.",
        )
    return CheckpointError(
        f"{name!r} cannot be opened: {_first_line(error)}", "Save or download it again; --debug shows the whole error."
    )


def _chain(error: BaseException) -> list[BaseException]:
    """The error and what it came from."""
    found: list[BaseException] = []
    at: BaseException | None = error
    while at is not None and at not in found:
        found.append(at)
        at = at.__cause__ or at.__context__
    return found


def _is_network(kinds: set[str], text: str) -> bool:
    signs = ("couldn't connect", "offline mode", "outgoing traffic", "Max retries", "Connection", "cached files")
    return bool(kinds & {"LocalEntryNotFoundError", "OfflineModeIsEnabled", "ConnectError", "ConnectionError"}) or any(
        sign in text for sign in signs
    )


def _first_line(error: BaseException) -> str:
    line = next((line.strip() for line in str(error).splitlines() if line.strip()), "")
    return f"{type(error).__name__}: {line[:200]}" if line else f"{type(error).__name__}."


def _nearest_demo(name: str) -> str:
    close = difflib.get_close_matches(f"demo:{name.rpartition('/')[2].lower()}", demo_models(), n=1, cutoff=0.5)
    return close[0] if close else "demo:minilm"


def _hint(name: str) -> str:
    return f"Check the spelling, or try {_nearest_demo(name)}; a private model needs: hf auth login."
