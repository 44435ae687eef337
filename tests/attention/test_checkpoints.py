"""Real checkpoints: every column against loops over eager maps, and what is known about their heads."""

from __future__ import annotations

import copy
import functools

import numpy as np
import pandas as pd
import pytest
import torch

from headlab.attention.heads import Heads
from headlab.base.masks import HeadMask
from headlab.models.texts.batch import Batch, Tokens
from tests.support.reference import STATISTICS, best_offset, eager_maps, head_norms, head_pool
from tests.support.tiny_models import CHECKPOINTS, projections, rows_of_head

pytestmark = pytest.mark.demo

SENTENCES = [
    "The harbour was quiet when the ferry came in, and nobody on the pier looked up.",
    "Two of the three lamps on the stairs do not work.",
    "She asked whether the letters, which had been kept in a tin box, were still readable.",
    "Rain again!",
]
PROSE = [
    "The mill stands at the bend of the river, where the road from the village meets the path along the dyke. For "
    "almost a century it ground the wheat of eleven farms, and the miller knew the weight of every sack before it was "
    "on the scale. When the railway came, the farms sold their grain in the town, and the great wheel was taken off. "
    "Since then swallows have nested in the loft, and children say that the stones turn at night.",
    "Whoever wants to repair an old clock should first look at it for an hour without touching it. Most faults can be "
    "heard: a tooth that is bent, a spring that slips, a pendulum that hangs askew. Then every screw is laid on a "
    "cloth in the order in which it was taken out, because no two of them are alike. The oil is the last thing, and "
    "less of it is better. A clock that has been oiled too well stops in its first winter.",
    "In the third week of March the ice on the lake began to move. It made a sound like a long sheet of tin being "
    "bent slowly, and the dogs refused to go near the shore. By noon a channel had opened between the island and the "
    "boat house, and the postman, who had walked across in the morning, had to stay for the night. He slept in the "
    "kitchen and told stories about his brother, who had gone to sea and come back with a parrot.",
    "The committee met on Tuesday to discuss the new timetable. Nobody was against an earlier bus, but nobody wanted "
    "to pay for it either, and so the meeting went on until the lights in the hall were turned off. In the end it was "
    "agreed that the bus should leave ten minutes earlier on market days, and that the driver should be asked whether "
    "he minded. The driver, it turned out, had been leaving ten minutes earlier for years.",
]


@functools.lru_cache(maxsize=1)
def checkpoint_of(name: str):
    from headlab.models import open_model

    return open_model(f"demo:{name}")


def batches_of(checkpoint, texts: list[str], length: int | None = None) -> list[Batch]:
    """Batches of two texts, padded on the right; with `length` texts are cut to that many tokens."""
    encoded = [checkpoint.tokenizer(text, return_special_tokens_mask=True) for text in texts]
    separator = checkpoint.tokenizer.sep_token_id
    batches = []
    for start in range(0, len(texts), 2):
        part = encoded[start : start + 2]
        longest = min(max(len(e["input_ids"]) for e in part), length or 10**6)
        ids, valid = (
            torch.zeros(len(part), longest, dtype=torch.long),
            torch.zeros(len(part), longest, dtype=torch.bool),
        )
        special = valid.clone()
        for row, e in enumerate(part):
            n = min(len(e["input_ids"]), longest)
            ids[row, :n] = torch.tensor(e["input_ids"][:n])
            special[row, :n] = torch.tensor(e["special_tokens_mask"][:n]).bool()
            valid[row, :n] = True
        separators = (ids == separator) & valid if separator is not None else torch.zeros_like(valid)
        inputs = {"input_ids": ids, "attention_mask": valid.long()}
        batches.append(Batch(inputs, Tokens(ids, valid, special, separators), examples=tuple(range(start, start + 2))))
    return batches


@pytest.mark.parametrize("name", ["minilm", "distilbert-tagger", pytest.param("smollm2", marks=pytest.mark.slow)])
def test_all_columns_equal_loops_over_eager_maps(name: str) -> None:
    checkpoint = checkpoint_of(name)
    model, n_heads = checkpoint.model, checkpoint.model.config.num_attention_heads
    batches = batches_of(checkpoint, SENTENCES)
    table = Heads(checkpoint).observe(batches, labels=["positional"])
    pool = head_pool(
        [(batch, eager_maps(model, batch, name)) for batch in batches],
        norms=[head_norms(model, batch, name, n_heads) for batch in batches],
    )
    for statistic in (*STATISTICS, "output_norm"):
        for column in (statistic, f"{statistic}_words"):
            slow = [pool.mean((key[:2], key[2], column)) for key in table.index]
            np.testing.assert_allclose(table[column], slow, atol=1e-4, rtol=1e-4, err_msg=column)
    for kind, layer, head in table.index:
        offset, row = best_offset(pool, (kind, layer), head, "even"), table.loc[(kind, layer, head)]
        assert row["positional_offset"] == offset
        slow = pool.mean(((kind, layer), head, ("odd", offset)))
        np.testing.assert_allclose(row["positional_score"], slow, atol=1e-4)


@pytest.mark.parametrize("name", ["minilm", "distilbert-tagger", pytest.param("smollm2", marks=pytest.mark.slow)])
def test_masked_equals_zeroed_rows_of_the_projection(name: str) -> None:
    checkpoint = checkpoint_of(name)
    model, n_heads = checkpoint.model, checkpoint.model.config.num_attention_heads
    heads = Heads(checkpoint)
    batch = batches_of(checkpoint, SENTENCES)[0]
    removed = [head for i, head in enumerate(heads.index) if i % 7 == 3]
    twin = copy.deepcopy(model)
    with torch.no_grad():
        for kind, layer, head in removed:
            rows_of_head(twin, name, projections(twin, name)[kind, layer][0], head, n_heads).zero_()
        native, expected = (m(**batch.inputs)[0][batch.source.valid] for m in (model, twin))
        with heads.masked(HeadMask.removing(removed, like=heads)):
            masked = model(**batch.inputs)[0][batch.source.valid]
        again = model(**batch.inputs)[0][batch.source.valid]
    assert (masked - expected).abs().max() < 1e-5 * max(1.0, expected.abs().max().item())
    assert (masked - native).abs().max() > 1e-2
    assert torch.equal(again, native)


def observed(name: str, texts: list[str], length: int | None = None) -> pd.DataFrame:
    checkpoint = checkpoint_of(name)
    labels = ["previous_token", "next_token", "self", "positional", "separator", "broad", "sink"]
    return Heads(checkpoint).observe(batches_of(checkpoint, texts, length), labels=labels)


def carrying(table: pd.DataFrame, label: str) -> set[tuple[int, int]]:
    return {(layer, head) for _, layer, head in table.index[table[label].fillna(False).astype(bool)]}


def test_minilm() -> None:
    """MiniLM (measured on UD English): L0H2 looks at the previous token with mass 1.00; no [SEP] heads, at most .16;
    [CLS] heads, L2H9 with .86."""
    table = observed("minilm", SENTENCES + PROSE)
    assert table.loc[("encoder", 0, 2), "prev_mass"] > 0.98
    assert (0, 2) in carrying(table, "previous_token") & carrying(table, "positional")
    assert table.loc[("encoder", 0, 2), "positional_offset"] == -1
    assert carrying(table, "separator") == set() and table["separator_mass"].max() < 0.3
    assert table["separator"].notna().all()
    sentences = observed("minilm", SENTENCES)  # on a paragraph of 100 tokens this head has half of that
    assert sentences.loc[("encoder", 2, 9), "first_mass"] > 0.7 and (2, 9) in carrying(sentences, "sink")


def test_distilbert_tagger() -> None:
    """The tagger's textbook heads (on UD English): [SEP] L4H2 1.00 and L4H9 .99; next token L0H3 .85 to .98."""
    table = observed("distilbert-tagger", SENTENCES + PROSE)
    assert {(4, 2), (4, 9)} <= carrying(table, "separator")
    assert table.loc[("encoder", 4, 2), "separator_mass"] > 0.97
    assert table.loc[("encoder", 4, 9), "separator_mass"] > 0.95
    assert (0, 3) in carrying(table, "next_token") & carrying(table, "positional")
    assert table.loc[("encoder", 0, 3), "next_mass_words"] > 0.9


@pytest.mark.slow
def test_smollm2() -> None:
    """SmolLM2 on text at T = 64: no BOS, and yet the first token holds .37 to .79 of the mass in layers 12 to 29, .04
    to .05 in layers 0, 1 and 11; sink metric .73; L16H0 looks at the previous token with .78."""
    checkpoint = checkpoint_of("smollm2")
    assert checkpoint.adds["bos"] is False
    table = observed("smollm2", PROSE, length=64)
    first = table["first_mass"].groupby("layer").mean()
    assert (first.loc[12:29] > 0.3).all() and (first.loc[[0, 1, 11]] < 0.12).all()
    sinks = carrying(table, "sink")
    assert {layer for layer, _ in sinks} >= set(range(12, 30))
    assert not {layer for layer, _ in sinks} & {0, 1}
    assert 0.6 < len(sinks) / 270 < 0.85
    assert table.loc[("decoder", 16, 0), "prev_mass"] > 0.6
    assert (16, 0) in carrying(table, "previous_token") & carrying(table, "positional")
    assert table["separator"].isna().all()
    assert (table["kv_group"] == table.index.get_level_values("head") // 3).all()
    assert set(CHECKPOINTS["smollm2"].layers) == set(table.index.get_level_values("layer"))
