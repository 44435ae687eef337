"""Which special tokens a tokenizer puts around a text: measured, since its settings do not always say."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from headlab.base.errors import CheckpointError

SAMPLE = "The cat sat."
NAMES = ("bos", "cls", "sep", "eos")


@dataclass(frozen=True)
class AddedTokens:
    """Ids that are put before and after a text."""

    before: tuple[int, ...] = ()
    after: tuple[int, ...] = ()

    def __len__(self) -> int:
        return len(self.before) + len(self.after)


def added_tokens(tokenizer: Any) -> AddedTokens:
    """What the tokenizer adds to a sample; CheckpointError where it changes the text's own tokens as well."""
    bare = list(tokenizer(SAMPLE, add_special_tokens=False, verbose=False)["input_ids"])
    full = list(tokenizer(SAMPLE, verbose=False)["input_ids"])
    for start in range(len(full) - len(bare) + 1):
        if bare and full[start : start + len(bare)] == bare:
            return AddedTokens(tuple(full[:start]), tuple(full[start + len(bare) :]))
    raise CheckpointError(
        "The tokenizer does not keep a text's own tokens together when it adds special ones.",
        "Use a tokenizer that adds special tokens before and after the text only.",
    )


def adds(tokenizer: Any) -> dict[str, bool]:
    """Whether the tokenizer adds its BOS, CLS, SEP and EOS token; one id may play two parts (RoBERTa's `<s>`)."""
    if tokenizer is None:
        return {}
    added = added_tokens(tokenizer)
    ids = {*added.before, *added.after}
    return {name: getattr(tokenizer, f"{name}_token_id", None) in ids for name in NAMES}


def separator_id(tokenizer: Any) -> int | None:
    """Id of the token that closes a segment: SEP, or EOS where the tokenizer itself adds it; else None."""
    sep, eos = (getattr(tokenizer, f"{name}_token_id", None) for name in ("sep", "eos"))
    if sep is not None:
        return int(sep)
    return int(eos) if eos is not None and eos in added_tokens(tokenizer).after else None


def padding_id(tokenizer: Any) -> int:
    """Id written where nothing is read: the padding token, else EOS, else 0."""
    ids = (getattr(tokenizer, f"{name}_token_id", None) for name in ("pad", "eos"))
    return int(next((each for each in ids if each is not None), 0))
