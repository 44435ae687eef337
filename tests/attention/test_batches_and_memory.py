"""A batch of n equals n singles; nothing as large as tokens x tokens x heads is made while observing."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pandas as pd
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from headlab.attention.heads import Heads
from headlab.attention.reach.blocks import BLOCK_BYTES
from headlab.base.errors import DataError, UsageError
from headlab.models.texts.batch import Batch
from tests.support.reference import make_batch, random_text, sample_texts, with_positions
from tests.support.tiny_models import FAMILIES, tiny_model

LABELS = ["previous_token", "positional", "separator", "broad", "sink"]


@pytest.mark.parametrize("pad_side", ["right", "left"])
@pytest.mark.parametrize("name", FAMILIES)
def test_a_batch_equals_its_texts_one_by_one(name: str, pad_side: str) -> None:
    if pad_side == "left" and name in ("bert", "distilbert", "albert", "bart", "marian"):
        pytest.skip("absolute positions that this family counts from the padding")
    heads = Heads(tiny_model(name))
    texts, targets = sample_texts(name)
    whole = make_batch(texts, targets, pad_side=pad_side)
    if name in ("gpt2", "gpt_neox", "llama", "deepseek_v3", "qwen3_next", "gemma2", "gpt_oss"):
        whole = with_positions(whole)
    singles = [
        make_batch([text], None if targets is None else [targets[i]], first_id=i) for i, text in enumerate(texts)
    ]
    together, apart = heads.observe([whole], labels=LABELS), heads.observe(singles, labels=LABELS)
    numbers = together.select_dtypes("float").columns
    pd.testing.assert_frame_equal(together[numbers], apart[numbers], atol=1e-4, rtol=1e-4)
    assert (together["n_queries"] == apart["n_queries"]).all()
    assert (together["labels"] == apart["labels"]).all()


def test_what_stands_in_the_padding_does_not_matter() -> None:
    for name in ("bert", "llama", "t5"):
        heads = Heads(tiny_model(name))
        texts, targets = sample_texts(name)
        batch = make_batch(texts, targets)
        table = heads.observe([batch], labels=LABELS)
        ids = torch.where(batch.source.valid, batch.source.ids, 7)
        other = Batch({**batch.inputs, "input_ids": ids}, batch.source, batch.target, batch.examples)
        pd.testing.assert_frame_equal(table, heads.observe([other], labels=LABELS), atol=1e-6)


LONG = 1024


class LargestTensor(TorchDispatchMode):
    """Notes the largest storage that any operation returns, by whether it holds numbers or truth values."""

    def __init__(self) -> None:
        super().__init__()
        self.numbers = self.truths = 0
        self.where = ""
        self.maps: list[str] = []  # tokens x tokens

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        for value in result if isinstance(result, (tuple, list)) else (result,):
            if isinstance(value, torch.Tensor):
                size = value.untyped_storage().nbytes()
                if value.dtype == torch.bool:
                    self.truths = max(self.truths, size)
                    continue
                shown = f"{function} {tuple(value.shape)} {value.dtype}"
                if size > self.numbers:
                    self.numbers, self.where = size, shown
                if value.dim() > 1 and min(value.shape[-2:]) >= LONG:
                    self.maps.append(shown)
        return result


@pytest.mark.parametrize("lengths", [(LONG,), (LONG, 900)])
@pytest.mark.parametrize("name", ["bert", "llama", "gemma2", "deepseek_v3"])
def test_no_map_is_made_while_observing(name: str, lengths: tuple[int, ...]) -> None:
    """At 1,024 tokens one head's map has 4 MiB and a layer's 16 MiB; blocks and their padded copies have far less."""
    settings = {"max_position_embeddings": LONG} if name != "deepseek_v3" else {}
    heads = Heads(tiny_model(name, num_hidden_layers=1, **settings, **one_layer(name)))
    texts = [random_text(n, n, separators=True) for n in lengths]
    with LargestTensor() as largest:
        heads.observe([make_batch(texts)], labels=LABELS)
    assert largest.maps == []
    assert largest.numbers < 2.5 * BLOCK_BYTES, largest.where
    assert largest.truths <= len(lengths) * LONG * LONG  # the mask that plain SDPA gets too


def one_layer(name: str) -> dict:
    return {"layer_types": ["full_attention"]} if name == "gemma2" else {}


def test_sums_do_not_grow_with_the_number_of_texts() -> None:
    from headlab.attention.observe.observation import Observation
    from headlab.labels import load_label

    labels = [load_label(name) for name in ("positional", "positional_argmax", "sink", "local", "vertical")]
    observation = Observation(Heads(tiny_model("bert")).subject, labels)

    def arrays(thing: object) -> Iterator[np.ndarray]:
        if isinstance(thing, np.ndarray):
            yield thing
        elif isinstance(thing, dict):
            for value in thing.values():
                yield from arrays(value)
        elif type(thing).__module__.startswith("headlab.attention.") and not isinstance(thing, Heads):
            yield from arrays(vars(thing))

    def held() -> int:
        return sum(array.nbytes for array in arrays(observation))

    observation.add(make_batch([random_text(9, 0, separators=True)]))
    before = held()
    for i in range(5):
        observation.add(make_batch([random_text(9 + i, i, separators=True)] * 3, first_id=3 * i))
    assert held() == before > 0


def test_batches_are_drawn_one_at_a_time() -> None:
    drawn, seen = [], []

    def batches() -> Iterator[Batch]:
        for i in range(4):
            drawn.append(i)
            yield make_batch([random_text(6, i, separators=False)], first_id=i)

    Heads(tiny_model("bert")).observe(batches(), progress=lambda done, total: seen.append((done, total, len(drawn))))
    assert seen == [(1, None, 1), (2, None, 2), (3, None, 3), (4, None, 4)]


def test_no_text_is_refused() -> None:
    with pytest.raises(DataError, match="no text"):
        Heads(tiny_model("bert")).observe([])


def test_unknown_labels_and_statistics_are_refused() -> None:
    heads = Heads(tiny_model("bert"))
    with pytest.raises(UsageError, match="separator"):
        heads.observe([], labels=["seperator"])
    with pytest.raises(UsageError, match="entropy_norm"):
        heads.observe([], statistics=["entropynorm"])
