"""Reads the binary files in which Marian stores its models; nothing is read beyond what the file's own sizes allow."""

from __future__ import annotations

import math
import struct
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from headlab.base.errors import CheckpointError

VERSION = 1
TEXT, FLOAT32, INT8 = 0x101, 0x404, 0x4101  # INT8: values, then one float32 by which they were multiplied
MOST_DIMENSIONS = 8
SETTINGS = "special:model.yml"


@dataclass(frozen=True)
class MarianFile:
    """Float32 arrays by name, in the shapes that the file states, and the settings stored beside them."""

    arrays: dict[str, np.ndarray]
    settings: dict[str, str]  # the top level of the model's YAML, nested lines left out


@dataclass(frozen=True)
class _Header:
    name_length: int
    kind: int
    n_dimensions: int
    data_length: int


class _Cursor:
    """A place in the file's bytes that never moves beyond their end."""

    def __init__(self, path: Path, data: bytes) -> None:
        self.path, self.data, self.place = path, data, 0

    def take(self, count: int, what: str) -> bytes:
        if count > len(self.data) - self.place:
            raise damaged(self.path, f"{what} would reach {count - (len(self.data) - self.place)} bytes beyond its end")
        self.place += count
        return self.data[self.place - count : self.place]

    def number(self, what: str) -> int:
        return int.from_bytes(self.take(8, what), "little")


def damaged(path: Path, what: str) -> CheckpointError:
    """The error for a file whose content contradicts itself."""
    return CheckpointError(f"{path.name} is no whole Marian model: {what}.", "Install the package or copy it again.")


def read_marian(path: Path) -> MarianFile:
    """Read a Marian model file; raises CheckpointError for one that is cut off, damaged or of another format.

    The layout: version, number of items; for each item the lengths of its name, shape and data; then all names, all
    shapes, padding, all data.
    """
    try:
        cursor = _Cursor(path, path.read_bytes())
    except OSError as error:
        raise CheckpointError(f"{path} cannot be read: {error.strerror}.", "Install the package again.") from error
    if (version := cursor.number("the version")) != VERSION:
        raise damaged(path, f"version {version} instead of {VERSION}")
    headers = _headers(cursor)
    names = [_text(cursor, cursor.take(h.name_length, "a name")) for h in headers]
    if len(set(names)) < len(names):
        raise damaged(path, "two items have the same name")
    shapes = [_shape(cursor, h, name) for h, name in zip(headers, names, strict=True)]
    cursor.take(cursor.number("the padding"), "the padding")
    arrays, settings = {}, {}
    for header, name, shape in zip(headers, names, shapes, strict=True):
        data = cursor.take(header.data_length, name)
        if header.kind != TEXT:
            arrays[name] = _array(path, header.kind, name, shape, data)
        elif name == SETTINGS:
            settings = _settings(_text(cursor, data))
    if cursor.place != len(cursor.data):
        raise damaged(path, f"{len(cursor.data) - cursor.place} bytes follow its last item")
    return MarianFile(arrays, settings)


def _headers(cursor: _Cursor) -> list[_Header]:
    count = cursor.number("the number of items")
    table = cursor.take(32 * count, f"the table of {count} items")
    return [_Header(*struct.unpack_from("<4Q", table, 32 * item)) for item in range(count)]


def _text(cursor: _Cursor, data: bytes) -> str:
    try:
        return data.rstrip(b"\0").decode("utf-8")
    except UnicodeDecodeError as error:
        raise damaged(cursor.path, "a name or text in it is not UTF-8") from error


def _shape(cursor: _Cursor, header: _Header, name: str) -> tuple[int, ...]:
    if header.n_dimensions > MOST_DIMENSIONS:
        raise damaged(cursor.path, f"{name} has {header.n_dimensions} dimensions")
    shape = struct.unpack(f"<{header.n_dimensions}i", cursor.take(4 * header.n_dimensions, f"the shape of {name}"))
    if any(length < 1 for length in shape):
        raise damaged(cursor.path, f"{name} has the shape {shape}")
    return shape


def _array(path: Path, kind: int, name: str, shape: tuple[int, ...], data: bytes) -> np.ndarray:
    count = math.prod(shape)
    if kind not in (FLOAT32, INT8):
        raise damaged(path, f"{name} has the unknown type {kind:#x}")
    needed = 4 * count if kind == FLOAT32 else count + 4
    if needed > len(data):
        raise damaged(path, f"{name} of shape {shape} needs {needed} bytes and has {len(data)}")
    if kind == FLOAT32:
        array = np.frombuffer(data, "<f4", count).astype(np.float32)
    else:
        (multiplier,) = struct.unpack_from("<f", data, count)
        if not (math.isfinite(multiplier) and multiplier > 0):
            raise damaged(path, f"{name} was multiplied by {multiplier}")
        array = np.frombuffer(data, np.int8, count).astype(np.float32) / np.float32(multiplier)
    if not np.isfinite(array).all():
        raise damaged(path, f"{name} holds numbers that are not finite")
    return array.reshape(shape)


def _settings(text: str) -> dict[str, str]:
    lines = (line.partition(":") for line in text.splitlines() if line and line[0] not in " -#")
    return {key: value.strip().strip('"') for key, colon, value in lines if colon}
