"""Tokens as people read them: without the marks of byte-level BPE, SentencePiece and WordPiece."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence

SPACE = "␣"
NEWLINE = "↵"
NOTHING = "∅"
_SPECIAL = re.compile(r"^(\[[A-Z_0-9]+\]|<[^<>\s]*>|<\|[^|]*\|>)$")
# marks that turn the writing direction of what follows them
_TURNS = "\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"
_BYTE = re.compile(r"^<0x([0-9A-Fa-f]{2})>$")


def _byte_alphabet() -> dict[str, int]:
    """Byte-level BPE writes every byte as a printable character; this is the way back."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in printable]
    alphabet = {chr(byte): byte for byte in printable}
    return alphabet | {chr(256 + i): byte for i, byte in enumerate(others)}


_ALPHABET = _byte_alphabet()


def readable_tokens(tokens: Sequence[str], limit: int | None = None) -> list[str]:
    """Tokens of one text for display: marks stripped, blanks and controls made visible, cut to `limit` characters."""
    byte_level = _is_byte_level(tokens)
    return [_shorten(_visible(_stripped(str(token), byte_level)), limit) for token in tokens]


def _is_byte_level(tokens: Sequence[str]) -> bool:
    words = [str(token) for token in tokens if not _SPECIAL.match(str(token))]
    marked = any(word.startswith(("Ġ", "Ċ")) for word in words)
    return marked and all(char in _ALPHABET for word in words for char in word)


def _stripped(token: str, byte_level: bool) -> str:
    if match := _BYTE.match(token):
        return bytes([int(match.group(1), 16)]).decode("utf-8", errors="replace")
    if _SPECIAL.match(token):
        return token
    if byte_level:
        text = bytes(_ALPHABET[char] for char in token).decode("utf-8", errors="replace")
    elif len(token) > 2 and token.startswith("##"):
        text = token[2:]
    else:
        text = token.removesuffix("</w>").replace("▁", " ")
    return text.strip(" ") or text


def _visible(text: str) -> str:
    """No character that draws nothing, breaks a line or turns the writing direction."""
    shown = "".join(_visible_character(char) for char in text)
    if shown and set(shown) == {SPACE} and len(shown) > 2:
        return f"{SPACE}×{len(shown)}"
    return shown or NOTHING


def _visible_character(char: str) -> str:
    if char == "\n":
        return NEWLINE
    if char.isspace():
        return SPACE
    # controls, lone surrogates, private use and unassigned characters
    if unicodedata.category(char) in {"Cc", "Cs", "Co", "Cn"} or char in _TURNS:
        return "\N{REPLACEMENT CHARACTER}"
    return char


def _shorten(text: str, limit: int | None) -> str:
    return text if limit is None or len(text) <= limit else f"{text[: limit - 1]}…"
