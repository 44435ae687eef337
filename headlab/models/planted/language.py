"""The toy language of the planted models: its words, tokenizers, texts, and a treebank whose relation is in the words.

The determiner `d3` belongs to the noun `n3`, wherever the two stand: a head that knows the words finds the relation
`det`, and no fixed offset does, since the words of a sentence are shuffled.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

LENGTH = 64  # tokens of a stated text, and the longest that a planted model takes
PERIOD = LENGTH // 2
CLASSES = 12
DETERMINERS = [f"d{k}" for k in range(CLASSES)]
NOUNS = [f"n{k}" for k in range(CLASSES)]
VERBS = [f"v{k}" for k in range(4)]
POINTS = [".", ","]
# Words of the needle of the label `retrieval`, so that the decoder can say them.
_ASKED = "the secret words of are"
_PLACES = "harbour library station garden museum school market tower bridge mill"
_SECRETS = (
    "amber candle copper falcon ginger ladder lemon marble meadow pepper pillow ribbon saddle silver thunder velvet"
)
SYNTAX = [*DETERMINERS, *NOUNS, *VERBS]
WORDS = {
    "encoder": [*SYNTAX, *(f"w{k}" for k in range(45))],
    "decoder": [*SYNTAX, *f"{_ASKED} {_PLACES} {_SECRETS}".split()],
}
SPECIAL = {
    "encoder": {
        "pad_token": "[PAD]",
        "unk_token": "[UNK]",
        "cls_token": "[CLS]",
        "sep_token": "[SEP]",
        "mask_token": "[MASK]",
    },
    "decoder": {"pad_token": "<pad>", "unk_token": "<unk>", "eos_token": "</s>"},
}


def vocabulary(kind: str) -> dict[str, int]:
    """Token -> id: 80 tokens of the encoder, 64 of the decoder."""
    tokens = [*SPECIAL[kind].values(), *POINTS, *WORDS[kind]]
    return {token: number for number, token in enumerate(tokens)}


def tokenizer(kind: str) -> Any:
    """One token a word, in lower case; the encoder's adds [CLS] before and [SEP] after, the decoder's nothing."""
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors
    from transformers import PreTrainedTokenizerFast

    ids, special = vocabulary(kind), SPECIAL[kind]
    plain = Tokenizer(models.WordLevel(ids, unk_token=special["unk_token"]))
    plain.normalizer = normalizers.Lowercase()
    plain.pre_tokenizer = pre_tokenizers.Whitespace()
    if kind == "encoder":
        frame = [(token, ids[token]) for token in ("[CLS]", "[SEP]")]
        plain.post_processor = processors.TemplateProcessing(single="[CLS] $A [SEP]", special_tokens=frame)
    return PreTrainedTokenizerFast(tokenizer_object=plain, model_max_length=LENGTH, **special)


def planted_texts(kind: str, *, texts: int = 40, seed: int = 0) -> list[str]:
    """The stated input: texts of 64 tokens.

    Encoder: 29 words, a full stop and `[SEP]`, then 30 words and a full stop, all 59 words different; with the frame
    that is `[CLS] A . [SEP] B . [SEP]`. Decoder: 32 different words, said twice, without punctuation.
    """
    draw = np.random.default_rng([seed, len(kind)])
    found = []
    for _ in range(texts):
        if kind == "encoder":
            words = list(draw.choice(WORDS[kind], LENGTH - 5, replace=False))
            found.append(" ".join([*words[: PERIOD - 3], ".", "[SEP]", *words[PERIOD - 3 :], "."]))
        else:
            found.append(" ".join([*draw.choice(WORDS[kind], PERIOD, replace=False)] * 2))
    return found


def planted_treebank(*, sentences: int = 150, seed: int = 0) -> str:
    """Sentences in CoNLL-U: four determiners, their four nouns and a verb in random order, and a full stop.

    A noun is the head of its determiner (det), the verb of the nouns (nsubj for a random one, obj for the others) and
    of the full stop (punct).
    """
    draw = np.random.default_rng([seed, 2])
    return "".join(_sentence(draw) for _ in range(sentences))


def write_texts(kind: str, folder: str | Path) -> None:
    """Write the stated input of a kind into a folder: `texts.txt`, one text a line, and `treebank.conllu`."""
    Path(folder, "texts.txt").write_text("\n".join(planted_texts(kind)) + "\n", encoding="utf-8")
    Path(folder, "treebank.conllu").write_text(planted_treebank(), encoding="utf-8")


def _sentence(draw: np.random.Generator) -> str:
    classes = [int(k) for k in draw.choice(CLASSES, 4, replace=False)]
    verb = str(draw.choice(VERBS))
    words = [*(DETERMINERS[k] for k in classes), *(NOUNS[k] for k in classes), verb]
    words = [words[place] for place in draw.permutation(len(words))] + ["."]
    subject = NOUNS[int(draw.choice(classes))]
    lines = []
    for place, word in enumerate(words):
        if word == verb:
            head, relation = 0, "root"
        elif word in DETERMINERS:
            head, relation = words.index(NOUNS[DETERMINERS.index(word)]) + 1, "det"
        else:
            relation = "punct" if word == "." else "nsubj" if word == subject else "obj"
            head = words.index(verb) + 1
        lines.append(f"{place + 1}\t{word}\t_\t_\t_\t_\t{head}\t{relation}\t_\t_\n")
    return "".join(lines) + "\n"
