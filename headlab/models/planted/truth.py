"""Every label that each planted head must carry on the stated input, reasoned from the definitions of the labels.

The stated input: `planted_texts` as given texts (64 tokens each), `planted_treebank` as the treebank, and what labels
bring along (of 64 tokens: period 31 for the encoder, 32 for the decoder). A head that is not to carry a label that
is defined must not carry it: together the sets below say all.
"""

from __future__ import annotations

DEPENDENT = "syntactic:det:dependent-head"
HEAD = "syntactic:det:head-dependent"

# A fixed offset of 1 is within two tokens (local) and the best offset there is (positional); its largest weight is
# there as well, since of 62 queries only the two beside a special token have that taken away (positional_argmax:
# 60/62). In the encoder 59 of 61 words find their neighbour in their own segment, .967 where .895 is asked for
# (block); in the decoder a text is one segment.
_OFFSET = frozenset({"positional", "positional_argmax", "local"})
# All weight on [CLS], which is the first token and a special one. The thresholds at 64 visible keys are .256 for sink,
# .603 for cls and .610 for vertical.
_ON_CLS = frozenset({"sink", "cls", "vertical"})

ENCODER = {
    "previous-token": _OFFSET | {"previous_token", "block"},
    "next-token": _OFFSET | {"next_token", "block"},
    # A word itself is within its segment, and it is the offset 0.
    "self": _OFFSET | {"self", "block"},
    # Two separators share the weight: .5 each, no offset. They are special tokens, so vertical; not [CLS].
    "separator": frozenset({"separator", "vertical"}),
    "sink": _ON_CLS,
    # Uniform: entropy is all there is. Every mass is at its chance level, far below each threshold.
    "broad": frozenset({"broad"}),
    # Uniform over the 30 or 31 words of the segment: ln 30 / ln 64 = .82, above the .783 of broad.
    "block": frozenset({"block", "broad"}),
    # On the stated texts only "." and [SEP] are there twice: 59 of 64 queries fall back on [CLS] (.92). Offset 32 is
    # that of both pairs, but 2 of the 32 queries that see it.
    "duplicate-token": _ON_CLS | {"duplicate_token"},
    # At most 12 of 64 queries are determiners, all others fall back on [CLS]: at least .81. A noun does not look back.
    "syntactic": _ON_CLS | {DEPENDENT},
    # .45 on the previous token is below .504, .45 + .55 * 4/63 = .485 within two tokens below .519, the entropy .71.
    # Voita's rule asks for the largest weight alone, however small.
    "impostor": frozenset({"positional_argmax"}),
    # No query, no key: uniform attention, whatever it is worth.
    "dead": frozenset({"broad"}),
    # One random key for each query takes nearly all: entropy .09 of the greatest, every mass about its chance level.
    "noise": frozenset(),
}

DECODER = {
    "previous-token": _OFFSET | {"previous_token"},
    "self": _OFFSET | {"self"},
    # No token of a text is special: cls and vertical are undefined. Each query has another offset to the first token.
    "sink": frozenset({"sink"}),
    # Gu's share is at its chance level, .074. What it sees it writes as prediction, the same token (copying).
    "broad": frozenset({"broad", "copying"}),
    # Second copy: the token after the earlier occurrence, offset 1 - 32 = -31, which 33 queries see, half of all and
    # more, and 32 of them take (row 31 by its fallback): .970, so positional by mass and by arg max. First copy and
    # the query 32, whose token the first key has both as its own and, since it has no token before it, as the one
    # before: the first token, 33/64 = .516 > .3 (sink by Gu's rule). It writes what it sees, and so it is the head by
    # which the needle is said (retrieval).
    "induction": frozenset({"induction", "copying", "retrieval", "sink", "positional", "positional_argmax"}),
    # The first occurrence of the own token: in the first copy the token itself (.5 of all queries, below the .53 of
    # self and the .57 of local), in the second the offset -32, which 32 queries see, half of all, and all take.
    "duplicate-token": frozenset({"duplicate_token", "positional", "positional_argmax"}),
    # At most 24 of 64 queries are nouns, all others fall back on the first token: at least .625. In a decoder a noun
    # looks back at its determiner; determiners fall back.
    "syntactic": frozenset({"sink", HEAD}),
    "dead": frozenset({"broad"}),
    # As in the encoder; what it writes is a random other token.
    "noise": frozenset(),
}

LABELS = {"encoder": ENCODER, "decoder": DECODER}

# Labels that mean nothing on the stated input, of every head: missing, not false.
UNDEFINED = {
    "encoder": frozenset(
        {
            "rare_token",  # all 80 tokens are among the 500 most frequent ones
            "copying",
            "retrieval",  # no output embedding, no text that is written
        }
    ),
    "decoder": frozenset(
        {
            "rare_token",
            "block",
            "cls",
            "separator",
            "vertical",  # one segment, no special token
            "punctuation",  # the stated texts have none
            "next_token",  # not visible
            "syntactic:punct:head-dependent",  # the full stop comes last: no verb can look back at it
        }
    ),
}
