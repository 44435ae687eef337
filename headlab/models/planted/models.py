"""Models whose heads were set by hand, and so known: an encoder and a decoder to try labels and scores on."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from headlab.base.errors import UsageError, unknown_name

if TYPE_CHECKING:
    from headlab.models.checkpoint import Checkpoint

KINDS = ("encoder", "decoder")


def planted_model(kind: str, *, seed: int = 0, noise: float = 0.0) -> Checkpoint:
    """The planted "encoder" (a BertModel, 3 layers x 4 heads) or "decoder" (a LlamaForCausalLM, 2 x 8 in 2 groups).

    `seed` shuffles the order of the heads and draws the noise. `noise` is the standard deviation, in nats, of what is
    added to each attention logit by way of the weights of the queries (see planted_encoder, planted_decoder). Raises
    UsageError for another kind or a noise below 0.
    """
    from headlab.models.checkpoint import Checkpoint, token_limit
    from headlab.models.texts.special_tokens import adds

    model, tokenizer = _made(kind, seed, noise)
    return Checkpoint(
        name=f"planted-{kind}",
        model=model,
        tokenizer=tokenizer,
        revision=f"seed:{seed}-noise:{noise:g}",
        max_length=token_limit(model, tokenizer),
        adds=adds(tokenizer),
    )


def planted_heads(kind: str, *, seed: int = 0) -> dict[tuple[str, int, int], str]:
    """(kind, layer, head) -> what was planted there, in the order of the head table; raises as planted_model does."""
    return {
        (_known(kind), layer, head): name
        for layer, names in enumerate(_home(kind).order(seed))
        for head, name in enumerate(names)
    }


def write_planted(kind: str, folder: str | Path, *, seed: int = 0, noise: float = 0.0) -> Path:
    """Save a planted model with its tokenizer and the texts it is made for: `texts.txt` and `treebank.conllu`.

    The folder is one that `headlab` opens; what is there already is replaced. Raises as planted_model does.
    """
    from headlab.models.planted.language import write_texts

    model, tokenizer = _made(kind, seed, noise)
    place = Path(folder)
    place.mkdir(parents=True, exist_ok=True)
    model.save_pretrained(place)
    tokenizer.save_pretrained(place)
    write_texts(kind, place)
    return place


def _made(kind: str, seed: int, noise: float) -> tuple[Any, Any]:
    make = getattr(_home(kind), f"planted_{kind}")
    if not 0 <= noise < float("inf"):
        raise UsageError(f"noise = {noise} is no standard deviation.", "Give a number of nats, 0 or more.")
    if seed < 0:
        raise UsageError(f"seed = {seed} is below 0.", "Give a whole number, 0 or more.")
    return make(seed=seed, noise=noise)


def _known(kind: str) -> str:
    if kind not in KINDS:
        raise unknown_name("planted model", kind, KINDS)
    return kind


def _home(kind: str) -> Any:
    import importlib

    return importlib.import_module(f"headlab.models.planted.{_known(kind)}")
