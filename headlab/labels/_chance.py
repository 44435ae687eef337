"""What the chance level of a label is, in words: needed where labels are computed and where they are only listed."""

from __future__ import annotations


def chance_level(label: str, statistic: str, *, permuted: bool) -> str:
    """What `<label>_null` is; `permuted` for labels of a place, whose published threshold has a chance level."""
    if statistic == "word_pairs":
        return "nearest earlier mention" if label == "coreference" else "best fixed offset, learned on even texts"
    if statistic == "copying":
        return "permutation of tokens: the mean over all ways to say whose each raise is"
    if not permuted:
        return "uniform attention"
    return "permutation of positions: the mean over all orders of the visible keys"
