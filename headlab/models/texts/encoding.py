"""Texts as a model reads them: files of lines, token ids with their special tokens, padded batches."""

from __future__ import annotations

import gzip
import inspect
import itertools
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from headlab.base.errors import DataError, UsageError
from headlab.models.checkpoint import require_known_ids, reserved_positions
from headlab.models.texts.batch import Batch, Tokens
from headlab.models.texts.special_tokens import AddedTokens, added_tokens, padding_id, separator_id

if TYPE_CHECKING:
    from headlab.models.checkpoint import Checkpoint

SHORTEST = 2  # tokens of its own that a text must have: one token has nothing to look at


@dataclass(frozen=True)
class EncodedTexts:
    """Sequences of token ids, each a text or a piece of one, with the special tokens that the tokenizer adds."""

    ids: list[list[int]]
    special: list[list[bool]]  # added by the tokenizer
    text: list[int]  # which text each sequence is from
    n_texts: int  # texts given
    n_split: int  # texts cut in pieces because they were too long
    n_too_short: int  # texts left out
    start: list[int]  # how many tokens of its text come before each sequence

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def n_chunks(self) -> int:
        """Sequences in all: texts kept whole, and the pieces of split ones."""
        return len(self.ids)


def read_texts(path: str | Path) -> list[str]:
    """The non-empty lines of a UTF-8 text file (.gz too), stripped; DataError where there is none to read."""
    place = Path(path)
    try:
        data = place.read_bytes()
        data = gzip.decompress(data) if place.suffix == ".gz" else data
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise DataError(f"{place} is not a whole gzip file.", "Compress it again, or give the plain text.") from error
    except OSError as error:
        cause = "There is no file" if isinstance(error, FileNotFoundError) else f"{error.strerror}:"
        raise DataError(f"{cause} {place}.", "Give the path of a UTF-8 text file.") from error
    try:
        lines = data.decode("utf-8-sig").split("\n")
    except UnicodeDecodeError as error:
        number = data.count(b"\n", 0, error.start) + 1
        raise DataError(f"{place} is not UTF-8: line {number}.", "Convert it, as with: iconv -t UTF-8.") from error
    texts = [line.strip() for line in lines if line.strip()]
    if not texts:
        raise DataError(f"{place} is empty.", "Give a file with one text a line.")
    return texts


def encode_texts(checkpoint: Checkpoint, texts: Sequence[str], *, max_length: int | None = None) -> EncodedTexts:
    """Token ids of texts; those beyond `max_length` tokens (else the model's limit) are split into even pieces.

    Each piece gets its own special tokens, which count towards the limit. Texts with fewer than 2 tokens of their own
    are left out and counted. Raises UsageError for a limit that cannot be kept, DataError where no text is left.
    """
    added, room = _frame(checkpoint, texts, max_length)
    ids: list[list[int]] = []
    special: list[list[bool]] = []
    owner: list[int] = []
    starts: list[int] = []
    n_split = n_too_short = 0
    bare = checkpoint.tokenizer(list(texts), add_special_tokens=False, verbose=False)["input_ids"] if texts else []
    for number, tokens in enumerate(bare):
        if len(tokens) < SHORTEST:
            n_too_short += 1
            continue
        pieces = _pieces(tokens, room)
        n_split += len(pieces) > 1
        for piece in pieces:
            ids.append([*added.before, *piece, *added.after])
            special.append([True] * len(added.before) + [False] * len(piece) + [True] * len(added.after))
            owner.append(number)
        starts += itertools.accumulate(map(len, pieces[:-1]), initial=0)
    if not ids:
        raise DataError(f"None of the {len(texts)} texts has {SHORTEST} tokens or more.", "Give longer texts.")
    require_known_ids(checkpoint, max(map(max, ids)))
    return EncodedTexts(ids, special, owner, len(texts), n_split, n_too_short, starts)


def batches(
    encoded: EncodedTexts, checkpoint: Checkpoint, *, batch_size: int = 16, pad_side: str = "right"
) -> Iterator[Batch]:
    """Batches of sequences of like length; `examples` of a batch are the places of its sequences in `encoded`.

    A sequence-to-sequence model's decoder is given the same text, shifted right by its start token.
    """
    if batch_size < 1:
        raise UsageError(f"batch_size = {batch_size} is no number of texts.", "Give 1 or more.")
    if pad_side not in ("left", "right"):
        raise UsageError(f"pad_side = {pad_side!r} is no side.", 'Give "right" or "left".')
    order = sorted(range(len(encoded)), key=lambda place: len(encoded.ids[place]))  # stable
    return (
        _batch(encoded, checkpoint, order[start : start + batch_size], pad_side)
        for start in range(0, len(order), batch_size)
    )


def text_batches(
    checkpoint: Checkpoint, texts: Sequence[str], *, batch_size: int = 16, max_length: int | None = None
) -> list[Batch]:
    """Texts as batches: `encode_texts` and `batches` in one."""
    return list(batches(encode_texts(checkpoint, texts, max_length=max_length), checkpoint, batch_size=batch_size))


def _frame(checkpoint: Checkpoint, texts: Sequence[str], max_length: int | None) -> tuple[AddedTokens, int | None]:
    """The special tokens, and how many tokens of its own a piece may have (None: any number)."""
    if checkpoint.tokenizer is None:
        raise UsageError(
            f"The model {checkpoint.name!r} has no tokenizer, and texts were given.",
            "Save its tokenizer into the folder of the model.",
        )
    if isinstance(texts, str):
        raise UsageError("One string was given, and a list of texts is read.", "Put it into a list.")
    limit = checkpoint.max_length
    if max_length is not None and limit is not None and max_length > limit:
        raise UsageError(
            f"max_length = {max_length} is beyond the {limit} tokens that the model takes.",
            f"Give {limit} or less; longer texts are split.",
        )
    longest = limit if max_length is None else max_length
    added = added_tokens(checkpoint.tokenizer)
    if longest is not None and longest < len(added) + SHORTEST:
        raise UsageError(
            f"max_length = {longest} leaves no room beside {len(added)} special tokens.",
            f"Give at least {len(added) + SHORTEST}.",
        )
    return added, None if longest is None else longest - len(added)


def _pieces(tokens: Sequence[int], room: int | None) -> list[Sequence[int]]:
    """As few pieces as fit, of as even a length as can be, so that no piece is a single token."""
    if room is None or len(tokens) <= room:
        return [tokens]
    count = -(-len(tokens) // room)
    cuts = [len(tokens) * number // count for number in range(count + 1)]
    return [tokens[start:end] for start, end in zip(cuts, cuts[1:], strict=False)]


def _batch(encoded: EncodedTexts, checkpoint: Checkpoint, places: Sequence[int], pad_side: str) -> Batch:
    tokenizer, model = checkpoint.tokenizer, checkpoint.model
    separator = separator_id(tokenizer)
    rows = [encoded.ids[place] for place in places]
    special = [encoded.special[place] for place in places]
    source = _tokens(rows, special, padding_id(tokenizer), separator, pad_side)
    inputs: dict[str, Any] = {"input_ids": source.ids, "attention_mask": source.valid.long()}
    if pad_side == "left" and not reserved_positions(model):
        inputs["position_ids"] = _left_positions(source.valid, model)
    target = None
    if checkpoint.is_encoder_decoder:
        start = decoder_start(model)
        shifted = [[start, *row[:-1]] for row in rows]
        target = _tokens(shifted, [[True, *row[:-1]] for row in special], padding_id(tokenizer), separator, pad_side)
        inputs |= {"decoder_input_ids": target.ids, "decoder_attention_mask": target.valid.long()}
    return Batch(inputs, source, target, examples=tuple(places)).to(next(model.parameters()).device)


def decoder_start(model: Any) -> int:
    """Id that a sequence-to-sequence model's decoder starts with."""
    for name in ("decoder_start_token_id", "bos_token_id", "pad_token_id"):
        for config in (model.config, getattr(model, "generation_config", None)):
            if isinstance(value := getattr(config, name, None), int):
                return value
    return 0


def _tokens(
    rows: Sequence[list[int]], special: Sequence[list[bool]], padding: int, separator: int | None, pad_side: str
) -> Tokens:
    width = max(len(row) for row in rows)
    ids = _padded(rows, width, padding, pad_side)  # (batch, tokens)
    valid = _padded([[True] * len(row) for row in rows], width, False, pad_side)
    closing = valid & (ids == separator) if separator is not None else torch.zeros_like(valid)
    return Tokens(ids, valid, _padded(special, width, False, pad_side), closing)


def _padded(rows: Sequence[list], width: int, fill: int | bool, pad_side: str) -> Tensor:
    missing = [[fill] * (width - len(row)) for row in rows]
    if pad_side == "left":
        return torch.tensor([gap + row for gap, row in zip(missing, rows, strict=True)])
    return torch.tensor([row + gap for gap, row in zip(missing, rows, strict=True)])


def _left_positions(valid: Tensor, model: Any) -> Tensor:
    """Positions counted from a row's first real token, (batch, tokens)."""
    if "position_ids" not in inspect.signature(model.forward).parameters:
        raise UsageError(
            "The model takes no position_ids, so padding on the left would move its tokens.", 'Use pad_side="right".'
        )
    return (valid.long().cumsum(dim=1) - 1).clamp(min=0)
