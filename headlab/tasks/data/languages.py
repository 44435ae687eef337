"""How a translation model is told its languages: tokens in front of a text, a forced first token, a written prefix."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from headlab.base.errors import UsageError

if TYPE_CHECKING:
    from headlab.models import Checkpoint


@dataclass(frozen=True)
class Languages:
    """What stands before each source, and which token every translation must begin with (None: any)."""

    prefix: str = ""
    source: str | None = None  # codes as the tokenizer writes them
    target: str | None = None
    forced: int | None = None
    start: int | None = None  # what the decoder starts with, where that is the language (mBART of 25 languages)
    tokens: frozenset[int] = frozenset()  # ids that name languages, which no translation is judged by


def pair_of_name(name: str) -> str:
    """`en-de` of `opus-mt-en-de` and `demo:firefox-en-pt`; empty where a name does not end in two languages."""
    match = re.search(r"(?:^|[-_/:])([a-z]{2,3})[-_]([a-z]{2,3})$", name.rstrip("/").lower())
    return f"{match[1]}-{match[2]}" if match else ""


def languages(
    checkpoint: Checkpoint, pair: str, *, prefix: str | None, source: str | None, target: str | None
) -> Languages:
    """Settings for a checkpoint from what the user gave; its tokenizer is set to the two languages.

    Raises UsageError for a multilingual model that is told no languages it knows, and for languages given to a model
    that marks none.
    """
    tokenizer = checkpoint.tokenizer
    first, _, second = pair.partition("-")
    if hasattr(tokenizer, "src_lang"):
        own = _code(checkpoint, source or first, "source")
        other = _code(checkpoint, target or second, "target")
        tokenizer.src_lang, tokenizer.tgt_lang = own, other
        ids = {code: language_id(tokenizer, code) for code in (own, other)}
        tokens = frozenset(found for found in ids.values() if found is not None)
        first_token = tokenizer(text_target=["a"], verbose=False)["input_ids"][0][0]
        if first_token != ids[other]:  # the token closes a target, and so starts the decoder
            return Languages(prefix or "", own, other, None, ids[other], tokens)
        return Languages(prefix or "", own, other, ids[other], None, tokens)
    if target and source is None and language_id(tokenizer, f">>{target}<<") is not None:
        return Languages(f">>{target}<< {prefix or ''}", None, target, None)  # Marian with several target languages
    if source or target:
        raise UsageError(
            f"{checkpoint.name!r} has no tokens for languages, and {source or target!r} was given.",
            "Leave source_language and target_language out: the model translates one pair.",
        )
    if prefix is None:
        prefix = _trained_prefix(checkpoint.model, first, second)
    return Languages(prefix)


def language_id(tokenizer: Any, code: str) -> int | None:
    """Id of a language's token, written as the code itself or as __code__; None where the tokenizer has none."""
    for token in (code, f"__{code}__"):
        number = tokenizer.convert_tokens_to_ids(token)
        if number is not None and number != tokenizer.unk_token_id:
            return int(number)
    return None


def _code(checkpoint: Checkpoint, code: str, side: str) -> str:
    """A code that the tokenizer knows: as given, or the only one that begins with it (`en` for `en_XX`)."""
    tokenizer, option = checkpoint.tokenizer, f"{side}_language"
    if not code:
        raise UsageError(
            f"{checkpoint.name!r} marks languages with tokens, and no {side} language was given.",
            f"Give pair (en-de), or {option} (such as {_examples(tokenizer)}).",
        )
    if language_id(tokenizer, code) is not None:
        return code
    known = [token for token in _special(tokenizer) if token.startswith(f"{code}_")]
    if len(known) == 1:
        return known[0]
    raise UsageError(
        f"{checkpoint.name!r} has no token for the {side} language {code!r}.",
        f"Give {option} as the model writes it (such as {_examples(tokenizer)}).",
    )


def _special(tokenizer: Any) -> list[str]:
    return [str(token) for token in tokenizer.get_added_vocab()]


def _examples(tokenizer: Any) -> str:
    codes = [token.strip("_") for token in _special(tokenizer) if re.fullmatch(r"_*[a-z]{2,3}(_\w+)?_*", token)]
    return ", ".join(codes[:3]) or "en"


def _trained_prefix(model: Any, first: str, second: str) -> str:
    """What T5 was trained to find before a text of this pair, where its configuration says so."""
    tasks = getattr(getattr(model, "config", None), "task_specific_params", None) or {}
    return str((tasks.get(f"translation_{first}_to_{second}") or {}).get("prefix", ""))
