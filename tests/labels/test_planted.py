"""Planted models: the heads look where they were told to, and every label finds all of its heads and no other."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

import headlab
from headlab.attention.heads import Heads
from headlab.attention.observe.observation import input_context
from headlab.base.errors import UsageError
from headlab.labels import default_labels, load_labels
from headlab.labels.inputs.needle import Haystacks
from headlab.labels.inputs.repeated import RepeatedTokens
from headlab.models.planted.language import LENGTH, PERIOD, planted_texts
from headlab.models.planted.models import KINDS, planted_heads, planted_model, write_planted
from headlab.models.planted.truth import LABELS, UNDEFINED
from headlab.models.texts.batch import Batch, Tokens
from headlab.models.texts.encoding import text_batches

OWN_INPUT = ["copying", "duplicate_token", "induction", "retrieval", "syntactic"]
SEEDS = (0, 1, 2, 3, 4)


@pytest.fixture(scope="module")
def treebank(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("planted")
    return write_planted("decoder", folder) / "treebank.conllu"


def observed(kind: str, treebank: Path, seed: int) -> tuple[pd.DataFrame, list[str]]:
    """The head table on the stated input with all labels that read no further file, and their names."""
    labels = load_labels([*default_labels(), *OWN_INPUT], conllu=treebank)
    checkpoint = planted_model(kind, seed=seed)
    table = Heads(checkpoint).observe(text_batches(checkpoint, planted_texts(kind, texts=20)), labels)
    return table, [label.name for label in labels]


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("kind", KINDS)
def test_every_label_has_precision_and_recall_1(kind: str, seed: int, treebank: Path) -> None:
    table, names = observed(kind, treebank, seed)
    planted = planted_heads(kind, seed=seed)
    assert list(planted) == list(table.index)
    assert {label for labels in LABELS[kind].values() for label in labels} | UNDEFINED[kind] <= set(names)
    wrong = {}
    for head, what in planted.items():
        for name in names:
            expected = None if name in UNDEFINED[kind] else name in LABELS[kind][what]
            found = None if pd.isna(table.loc[head, name]) else bool(table.loc[head, name])
            if found is not expected:
                wrong[what, name] = (expected, found)
    assert not wrong


def test_seeds_shuffle_the_heads() -> None:
    for kind in KINDS:
        orders = [list(planted_heads(kind, seed=seed).values()) for seed in SEEDS]
        assert len({tuple(names) for names in orders}) == len(SEEDS)
        assert all(sorted(names) == sorted(orders[0]) for names in orders)
        assert set(orders[0]) == set(LABELS[kind])
    for seed in range(20):  # an induction head needs what the layer below has written
        found = planted_heads("decoder", seed=seed)
        assert {layer for (_, layer, _), name in found.items() if name == "induction"} == {1}
        assert "previous-token" in {name for (_, layer, _), name in found.items() if layer == 0}


def looked_at(what: str, kind: str, tokens: list[str], i: int) -> list[int]:
    """The keys that a head looks at from query i, all alike, as a reader of its description would say."""
    n = len(tokens)
    seen = list(range(i + 1)) if kind == "decoder" else list(range(n))
    own = [j for j in seen if tokens[j] == tokens[i] and (j != i or kind == "decoder")]
    words = {
        "previous-token": [i - 1],
        "next-token": [i + 1],
        "self": [i],
        "broad": seen,
        "dead": seen,
        "sink": [0],
        "separator": [j for j in seen if tokens[j] == "[SEP]"],
        "block": list(range(1, 31)) if i < 32 else list(range(32, 63)),
        "duplicate-token": own[:1] or ([0] if i else seen[1:]),
    }
    if what == "syntactic":
        looks, at = ("d", "n") if kind == "encoder" else ("n", "d")
        partner = at + tokens[i][1:]
        found = [j for j in seen if tokens[i][0] == looks and tokens[i][1:].isdigit() and tokens[j] == partner]
        return found[:1] or [0]
    if what == "induction":  # the first key has no token before it but itself
        return ([j for j in seen if i and tokens[max(0, j - 1)] == tokens[i]] or [0])[:1]
    return [j for j in words[what] if j in seen] or (seen if kind == "encoder" else [0])


@pytest.mark.parametrize("kind", KINDS)
def test_the_models_compute_the_intended_maps(kind: str) -> None:
    """The model's own eager maps, all heads, against the patterns written down key by key."""
    checkpoint = planted_model(kind, seed=1)
    model, (batch,) = checkpoint.model, text_batches(checkpoint, planted_texts(kind, texts=2))
    model.set_attn_implementation("eager")
    with torch.no_grad():
        maps = model(**batch.inputs, output_attentions=True).attentions
    for row in range(2):
        tokens = checkpoint.tokenizer.convert_ids_to_tokens(batch.source.ids[row].tolist())
        assert len(tokens) == LENGTH
        for (_, layer, head), what in planted_heads(kind, seed=1).items():
            if what in ("noise", "impostor"):
                continue
            expected = np.zeros((LENGTH, LENGTH))
            for i in range(LENGTH):
                keys = looked_at(what, kind, tokens, i)
                expected[i, keys] = 1 / len(keys)
            # 12 nats leave each of 63 others e^-12 of the peak: 4e-4 in all.
            np.testing.assert_allclose(maps[layer][row, head], expected, atol=5e-4, err_msg=what)


def test_an_impostor_has_less_than_half_and_a_noise_head_has_peaks() -> None:
    checkpoint = planted_model("encoder")
    (batch,) = text_batches(checkpoint, planted_texts("encoder", texts=1))
    maps = Heads(checkpoint).capture(batch)
    where = {what: head for head, what in planted_heads("encoder").items()}
    kind, layer, head = where["impostor"]
    found = maps[kind, layer][0, head]
    np.testing.assert_allclose(found.diagonal(offset=-1), 0.45, atol=1e-4)
    assert found[5, 20] == pytest.approx(0.55 / 63, abs=1e-5)
    kind, layer, head = where["noise"]
    assert maps[kind, layer][0, head].max(-1).values.mean() > 0.5


@pytest.fixture(scope="module")
def decoder_maps() -> dict[str, torch.Tensor]:
    """Maps (text, query, key) of the decoder on the stated texts: period 32, T = 64."""
    checkpoint = planted_model("decoder", seed=2)
    (batch,) = text_batches(checkpoint, planted_texts("decoder", texts=4))
    maps = Heads(checkpoint).capture(batch)
    return {what: maps[kind, layer][:, head] for (kind, layer, head), what in planted_heads("decoder", seed=2).items()}


def test_the_scores_of_the_hand_made_transformer_come_out(decoder_maps: dict[str, torch.Tensor]) -> None:
    """Scores of the numpy construction that the Llama follows, at period 32 and T = 64, as closed forms."""

    def diagonal(what: str, offset: int, start: int = 0) -> float:
        return decoder_maps[what].diagonal(offset=offset, dim1=1, dim2=2)[:, start:].mean().item()

    def first(what: str) -> float:
        return decoder_maps[what][:, :, 0].mean().item()

    def entropy(what: str) -> float:
        found = decoder_maps[what].double()
        return -torch.special.xlogy(found, found).sum(-1).mean().item()

    harmonic = sum(1 / t for t in range(1, LENGTH + 1))
    assert diagonal("previous-token", -1) == pytest.approx(1, abs=5e-4)
    assert first("previous-token") == pytest.approx(2 / 64, abs=5e-4)  # .031
    assert entropy("previous-token") <= 0.003
    assert first("broad") == pytest.approx(harmonic / 64, abs=1e-6)  # .074
    assert entropy("broad") == pytest.approx(sum(math.log(t) for t in range(1, 65)) / 64, abs=1e-5)  # 3.206
    assert first("sink") == pytest.approx(1, abs=5e-4)
    assert diagonal("induction", 1 - PERIOD) == pytest.approx(32 / 33, abs=5e-4)  # .970, TransformerLens' diagonal
    assert diagonal("induction", 1 - PERIOD, start=1) == pytest.approx(31 / 32, abs=5e-4)  # .969, second copy alone
    assert first("induction") == pytest.approx(33 / 64, abs=5e-4)  # .516
    assert diagonal("duplicate-token", -PERIOD) >= 0.997  # of the first occurrence: 1


def test_scores_of_the_encoder_with_two_separators() -> None:
    checkpoint = planted_model("encoder")
    table = Heads(checkpoint).observe(text_batches(checkpoint, planted_texts("encoder", texts=4)), ["separator"])
    table = table.set_index(pd.Index(planted_heads("encoder").values()))
    beside = 62 * math.exp(-12)  # weight of all others, where each separator has 1
    entropy = math.log(2 + beside) + 12 * beside / (2 + beside)
    assert table.loc["separator", "separator_mass"] == pytest.approx(2 / (2 + beside), abs=1e-5)  # 1.000
    assert table.loc["separator", "entropy"] == pytest.approx(entropy, abs=1e-4)  # .696
    assert table.loc["separator", "max_weight"] == pytest.approx(1 / (2 + beside), abs=1e-4)  # .5
    assert table.loc["broad", "entropy"] == pytest.approx(math.log(64), abs=1e-4)  # 4.159


@pytest.mark.parametrize("kind", KINDS)
def test_the_sink_and_the_dead_head_add_nothing(kind: str) -> None:
    checkpoint = planted_model(kind)
    table = Heads(checkpoint).observe(text_batches(checkpoint, planted_texts(kind, texts=2)))
    for head, what in planted_heads(kind).items():
        assert (table.loc[head, "output_norm"] == 0) == (what in ("sink", "dead"))


def test_without_a_separator_the_label_is_undefined_and_the_head_is_broad() -> None:
    """What a separator head does on a text without one: it looks everywhere, and the label is missing, not false."""
    checkpoint = planted_model("encoder")
    ids = torch.tensor([checkpoint.tokenizer(planted_texts("encoder", texts=1)[0])["input_ids"]])
    ids[ids == checkpoint.tokenizer.sep_token_id] = checkpoint.tokenizer.convert_tokens_to_ids("w0")
    nothing = torch.zeros_like(ids, dtype=torch.bool)
    batch = Batch({"input_ids": ids, "attention_mask": torch.ones_like(ids)}, Tokens(ids, ~nothing, nothing, nothing))
    table = Heads(checkpoint).observe([batch], ["separator", "vertical", "broad"])
    assert table["separator"].isna().all() and table["vertical"].isna().all()
    table = table.set_index(pd.Index(planted_heads("encoder").values()))
    assert table.loc["separator", "labels"] == "broad"


def test_the_decoder_says_what_it_has_seen() -> None:
    """Induction is worth something: the second copy is predicted, the first is not."""
    checkpoint = planted_model("decoder")
    (batch,) = text_batches(checkpoint, planted_texts("decoder", texts=4))
    with torch.no_grad():
        said = checkpoint.model(**batch.inputs).logits.argmax(-1)
    right = said[:, :-1] == batch.source.ids[:, 1:]
    assert right[:, PERIOD + 1 :].all()
    assert right[:, : PERIOD - 1].float().mean() < 0.1


def test_importance_is_where_it_was_planted() -> None:
    heads = Heads(planted_model("decoder"))
    texts = text_batches(heads.checkpoint, planted_texts("decoder", texts=4))

    def loss(*removed: tuple[str, int, int]) -> float:
        (batch,) = texts
        with torch.no_grad(), heads.masked(headlab.HeadMask.removing(removed, like=heads)):
            return heads.model(**batch.inputs, labels=batch.source.ids).loss.item()

    cost = {head: loss(head) - loss() for head in heads.index}
    planted = planted_heads("decoder")
    for head, what in planted.items():
        if what in ("sink", "dead"):
            assert cost[head] == 0
    useful = {head for head, what in planted.items() if what == "induction" or what == "previous-token" and not head[1]}
    assert set(sorted(cost, key=cost.__getitem__)[-3:]) == useful
    assert min(cost[head] for head in useful) > 10 * max(abs(cost[head]) for head in set(cost) - useful)


@pytest.mark.parametrize("kind", KINDS)
def test_noise_is_in_nats_of_the_logits(kind: str) -> None:
    """A head without any wish of its own has logits whose spread over keys is the noise."""
    noise = 0.5
    checkpoint = planted_model(kind, noise=noise)
    (batch,) = text_batches(checkpoint, planted_texts(kind, texts=4))
    maps = Heads(checkpoint).capture(batch)
    ((_, layer, head),) = [head for head, what in planted_heads(kind).items() if what == "dead"][:1]
    rows = maps[kind, layer][:, head][:, PERIOD:].log()
    rows = rows[..., :PERIOD]  # a row of logits is known up to a constant
    assert rows.std(-1).mean().item() == pytest.approx(noise, rel=0.1)


def test_the_caller_s_random_state_is_left_alone_and_seeds_repeat() -> None:
    torch.manual_seed(3)
    before = torch.get_rng_state()
    for kind in KINDS:
        twice = [planted_model(kind, seed=4, noise=1.0).model.state_dict() for _ in range(2)]
        assert all(torch.equal(twice[0][name], twice[1][name]) for name in twice[0])
    assert torch.equal(before, torch.get_rng_state())


@pytest.mark.parametrize("kind", KINDS)
def test_demo_names_open_the_same_model(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADLAB_CACHE", str(tmp_path))
    opened, made = headlab.open_model(f"demo:planted-{kind}"), planted_model(kind)
    assert type(opened.model) is type(made.model) and opened.max_length == made.max_length == LENGTH
    assert opened.adds == made.adds
    for name, weight in made.model.state_dict().items():
        assert torch.equal(weight, opened.model.state_dict()[name]), name
    again = headlab.open_model(f"demo:planted-{kind}")
    assert again.revision == opened.revision


def test_wrong_requests_are_refused() -> None:
    with pytest.raises(UsageError, match="encoder"):
        planted_model("encodr")
    with pytest.raises(UsageError, match="below 0"):
        planted_model("encoder", seed=-1)
    for noise in (-1.0, math.nan, math.inf):
        with pytest.raises(UsageError, match="no standard deviation"):
            planted_model("encoder", noise=noise)


def test_a_needle_fits_into_the_model_and_is_known_to_the_tokenizer(tiny_lm: Path) -> None:
    heads = Heads(planted_model("decoder"))
    found = Haystacks().batches(input_context(heads.subject))
    assert len(found) == Haystacks().runs
    assert all(batch.source.ids.shape[1] <= LENGTH for batch in found)
    strange = Heads(headlab.open_model(str(tiny_lm)))  # all words of the needle are unknown to it
    assert Haystacks().batches(input_context(strange.subject)) == []


def test_repeated_tokens_have_the_stated_period() -> None:
    for kind, period in (("encoder", 31), ("decoder", PERIOD)):
        (batch,) = RepeatedTokens().batches(input_context(Heads(planted_model(kind)).subject))
        assert batch.extra["period"] == period and batch.source.ids.shape[1] == LENGTH
