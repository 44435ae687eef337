"""meta.json: what the numbers of a run folder are of, which command made them, and notes."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from headlab.base.errors import DataError
from headlab.base.json_text import to_json
from headlab.runs import tables
from headlab.runs.files import META, write_atomically

_NAME_A_RUN = "Name a folder that headlab dump or headlab sweep wrote."


def write_meta(
    folder: str | Path,
    signature: Mapping[str, Any],
    *,
    command: str = "",
    finished: bool = True,
    notes: Mapping[str, Any] | None = None,
) -> Path:
    """Write `meta.json`: the signature, the exact command, UTC time, whether the run came to its end, and notes.

    The signature says what the numbers are of (model, task, data, seed ...) and decides whether a run is resumed;
    notes are what is worth telling beside it (texts split, proofs passed).
    """
    meta = {
        "signature": signature,
        "command": command,
        "time": datetime.now(UTC).isoformat(timespec="seconds"),
        "finished": finished,
        "notes": notes or {},
        "schema": tables.SCHEMA_VERSION,
    }
    return write_atomically(Path(folder) / META, to_json(meta))


def read_meta(folder: str | Path) -> dict[str, Any]:
    """The contents of a run's `meta.json`; raises DataError where it is missing, damaged or of a newer schema."""
    path = Path(folder) / META
    try:
        meta = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise DataError(f"{folder} has no meta.json.", _NAME_A_RUN) from None
    except (OSError, ValueError) as error:
        raise DataError(f"{path} cannot be read: {error}", "Write the run again.") from error
    if not isinstance(meta, dict) or not isinstance(meta.get("signature"), dict):
        raise DataError(f"{path} was not written by headlab.", _NAME_A_RUN)
    if meta.get("schema", 0) > tables.SCHEMA_VERSION:
        raise DataError(
            f"{path} has schema {meta['schema']}, this headlab reads up to {tables.SCHEMA_VERSION}.", "Update headlab."
        )
    return meta
