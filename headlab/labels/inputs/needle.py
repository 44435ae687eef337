"""A needle in a haystack: a fact within other text, asked for at the end, and what the model then says."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from headlab.labels.inputs.context import InputContext
from headlab.labels.inputs.repeated import longest

if TYPE_CHECKING:
    from torch import Tensor

    from headlab.labels.scene import Scene
    from headlab.models.texts.batch import Batch

PLACES = ("harbour", "library", "station", "garden", "museum", "school", "market", "tower", "bridge", "mill")
WORDS = "amber candle copper falcon ginger ladder lemon marble meadow pepper pillow ribbon saddle silver thunder velvet"
RECALLED = 0.5  # share of the needle that must be said for a run to count


@dataclass(frozen=True)
class Haystacks:
    """`runs` prompts of `length` tokens with a needle at different depths, each with what the model says next.

    The model decodes greedily; runs in which it does not say more than half of the needle are left out, and so are
    needles that its tokenizer has no tokens for. A model with fewer positions gets a shorter haystack. Extra:
    `needle` (batch, token), the tokens asked for, and `said` (batch, token), the queries that predict what was said.
    """

    length: int = 256
    runs: int = 12

    def batches(self, context: InputContext) -> list[Batch]:
        """One batch for each run that counts; nothing for a model that writes no text."""
        model = context.model
        if not hasattr(model, "generate") or not context.causal or model.get_output_embeddings() is None:
            return []
        if getattr(context.checkpoint, "tokenizer", None) is None:
            return []
        found = [_run(context, self, number) for number in range(self.runs)]
        return [batch for batch in found if batch is not None]


def _run(context: InputContext, sizes: Haystacks, number: int) -> Batch | None:
    import torch

    from headlab.models.texts.batch import Batch, Tokens

    ids, needle = _prompt(context, sizes, number)
    device = next(context.model.parameters()).device
    prompt = torch.tensor([ids], device=device)
    wanted = [ids[place] for place in needle]
    unknown = getattr(context.checkpoint.tokenizer, "unk_token_id", None)
    if unknown in wanted or len(ids) + len(wanted) > longest(context):
        return None
    with torch.no_grad():
        said = context.model.generate(
            prompt,
            attention_mask=torch.ones_like(prompt),
            do_sample=False,
            max_new_tokens=len(wanted),
            pad_token_id=ids[0],
        )
    new = said[0, len(ids) :].tolist()
    if len(set(wanted) & set(new)) <= RECALLED * len(set(wanted)):
        return None
    at = torch.zeros(1, said.shape[1], dtype=torch.bool, device=device)
    asked, speaks = at.clone(), at.clone()
    asked[0, needle] = True
    speaks[0, len(ids) - 1 : -1] = True  # a token is predicted one place before it stands
    tokens = Tokens(said, torch.ones_like(at), at, at)
    return Batch(
        {"input_ids": said, "attention_mask": torch.ones_like(said)},
        tokens,
        examples=(number,),
        extra={"needle": asked, "said": speaks},
    )


def _prompt(context: InputContext, sizes: Haystacks, number: int) -> tuple[list[int], list[int]]:
    """Token ids of the prompt, and the places of the tokens that are asked for."""
    from headlab.models.demo.texts import demo_prose

    tokenizer: Any = context.checkpoint.tokenizer
    draw = np.random.default_rng([context.seed, number])
    place = PLACES[number % len(PLACES)]
    code = " " + " ".join(draw.choice(WORDS.split(), 4, replace=False))
    lead = f" The secret words of the {place} are"

    def encode(text: str) -> list[int]:
        return list(tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"])

    sentences = [s.strip() + "." for s in " ".join(demo_prose()).replace("\n", " ").split(".") if s.strip()]
    length = min(sizes.length, longest(context) - len(encode(code)))  # what is said takes positions too
    room = length - 2 * len(encode(lead)) - len(encode(code)) - 4
    hay, used, first = [], 0, int(draw.integers(len(sentences)))
    for step in range(len(sentences)):
        piece = encode(" " + sentences[(first + step) % len(sentences)])
        if used + len(piece) > room:
            break
        hay.append(piece)
        used += len(piece)
    depth = int(draw.integers(1, max(2, len(hay))))
    before = [token for piece in hay[:depth] for token in piece] + encode(lead)
    asked = encode(code)
    after = encode(".") + [token for piece in hay[depth:] for token in piece] + encode(lead)
    start = [tokenizer.bos_token_id] if context.checkpoint.adds.get("bos") else []
    begin = len(start) + len(before)
    return [*start, *before, *asked, *after], list(range(begin, begin + len(asked)))


def copied_from(scene: Scene, rows: slice) -> Tensor:
    """For each query that predicts what was said, the tokens of the needle that are just that. (batch, row, key)"""
    ids = scene.keys.ids
    following = ids.roll(-1, -1)[:, rows, None]
    return scene.extra["said"][:, rows, None] & scene.extra["needle"][:, None] & (following == ids[:, None])
