"""The task translation against loops over single tokens, and its metrics against sacrebleu."""

from __future__ import annotations

import json
import math

import numpy as np
import pandas as pd
import pytest
import sacrebleu
import torch

from headlab.attention.heads import Heads
from headlab.base.errors import DataError, UsageError
from headlab.base.masks import HeadMask
from headlab.metrics import metric
from headlab.models import decoding
from headlab.pruning.orderings import order
from headlab.pruning.significance import drawn_counts, paired_bootstrap
from headlab.pruning.sweep import sweep
from headlab.scores import score
from headlab.tasks import task
from headlab.testing import check_task
from tests.support.seq2seq_models import FAMILIES, WORDS, checkpoint

LANGUAGES = {
    "nllb": {"source_language": "eng_Latn", "target_language": "por_Latn"},
    "mbart": {"pair": "en-pt"},  # the only codes that begin so are en_XX and pt_XX
}
N = 11


@pytest.fixture
def files(tmp_path):
    """Sources and references of 1 to 7 words, one blank source and one blank reference among them."""
    rng = np.random.default_rng(0)
    sides = [[" ".join(rng.choice(WORDS, rng.integers(1, 8))) for _ in range(N)] for _ in range(2)]
    sides[0][4] = sides[1][6] = ""
    paths = [tmp_path / name for name in ("a.en", "a.pt")]
    for path, lines in zip(paths, sides):
        path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return {"source": paths[0], "reference": paths[1]}


def opened(family, files, **options):
    return task("translation", checkpoint(family), **files, **LANGUAGES.get(family, {}), **options)


def start_of(judged) -> list[int]:
    """What the decoder is given before its first free token: start token, then a forced one."""
    config = judged.network.config
    return [config.decoder_start_token_id] + {
        "nllb": [judged.spoken.forced],
        "mbart": [judged.spoken.forced],
        "bart": [3],
    }.get(judged.checkpoint.name, [])


@torch.no_grad()
def next_scores(judged, source: str, shown: list[int]) -> torch.Tensor:
    ids = torch.tensor([judged.checkpoint.tokenizer(source)["input_ids"]])
    model = judged.network
    return model(input_ids=ids, decoder_input_ids=torch.tensor([shown]), use_cache=False).logits[0, -1].double()


def decoded_by_hand(judged, source: str, limit: int) -> tuple[str, bool]:
    shown = start_of(judged)
    fixed = len(shown)
    tokenizer = judged.checkpoint.tokenizer
    while len(shown) - 1 < limit:
        scores = next_scores(judged, source, shown)
        scores[judged.network.config.pad_token_id] = -math.inf  # see the models
        token = int(scores.argmax())
        if token == tokenizer.eos_token_id:
            return tokenizer.decode(shown[fixed:], skip_special_tokens=True).strip(), True
        shown.append(token)
    return tokenizer.decode(shown[fixed:], skip_special_tokens=True).strip(), False


def test_translation_follows_the_contract_of_tasks(files):
    check_task(opened(FAMILIES[0], files))


@pytest.mark.parametrize("family", FAMILIES)
def test_loss_and_translations_equal_loops_over_tokens(family, files):
    judged = opened(family, files, max_new_tokens=9)
    found, made = judged.evaluate().examples, judged.translations()
    tokenizer = judged.checkpoint.tokenizer
    lengths = set()
    for place in range(N):
        source, reference = made.loc[place, "source"], made.loc[place, "reference"]
        if not source or not reference:
            assert found.loc[place, ["loss", "nll", "tokens", "hits"]].tolist() == [0, 0, 0, 0]
        else:
            shown, nll, hits = start_of(judged), 0.0, 0
            wanted = list(tokenizer(reference, add_special_tokens=False)["input_ids"])
            for token in [*wanted, tokenizer.eos_token_id]:
                scores = next_scores(judged, source, shown)
                nll -= float(torch.log_softmax(scores, 0)[token])
                hits += int(scores.argmax()) == token
                shown.append(token)
            row = found.loc[place]
            assert row["nll"] == pytest.approx(nll, rel=1e-5) and row["tokens"] == len(wanted) + 1
            assert row["hits"] == hits and row["loss"] == pytest.approx(nll / (len(wanted) + 1), rel=1e-5)
        if source:
            text, finished = decoded_by_hand(judged, source, 9)
            assert (made.loc[place, "translation"], made.loc[place, "finished"]) == (text, finished)
            lengths.add(made.loc[place, "n_tokens"])
        else:
            assert made.loc[place, "translation"] == "" and made.loc[place, "finished"]
    assert len(set(made["translation"])) > 3


@pytest.mark.parametrize("family", ["marian", "t5", "nllb"])
def test_masks_act_in_every_step_of_decoding(family, files):
    """Decoding with a cache under a mask is a loop without one, in a model whose columns of the heads are zero."""
    judged = opened(family, files, max_new_tokens=9)
    whole = judged.translations()["translation"]
    heads = Heads(judged.model)
    with heads.masked(HeadMask.removing("E0H1,D0H2,D1H0,X0H1,X1H3", like=heads)):
        masked = judged.translations()
    model = judged.network
    for kind, layer, head in [("E", 0, 1), ("D", 0, 2), ("D", 1, 0), ("X", 0, 1), ("X", 1, 3)]:
        stack = (
            (model.encoder if family == "t5" else model.model.encoder)
            if kind == "E"
            else (model.decoder if family == "t5" else model.model.decoder)
        )
        if family == "t5":
            block = stack.block[layer].layer[1 if kind == "X" else 0]
            output = (block.EncDecAttention if kind == "X" else block.SelfAttention).o
        else:
            output = (stack.layers[layer].encoder_attn if kind == "X" else stack.layers[layer].self_attn).out_proj
        with torch.no_grad():
            output.weight[:, head * 4 : head * 4 + 4] = 0
    for place in range(N):
        if source := masked.loc[place, "source"]:
            assert masked.loc[place, "translation"] == decoded_by_hand(judged, source, 9)[0]
    assert (masked["translation"] != whole).any()


@pytest.mark.parametrize("family", ["marian", "mbart"])
@pytest.mark.parametrize("options", [{"batch_size": 1}, {"batch_size": 4, "beams": 3}])
def test_batch_size_changes_nothing(family, files, options):
    beams = options.get("beams", 1)
    one = opened(family, files, **options)
    all_at_once = opened(family, files, beams=beams, batch_size=50)
    assert one.translations().equals(all_at_once.translations())
    first, second = one.evaluate(), all_at_once.evaluate()
    assert first.values["bleu"] == second.values["bleu"] and first.values["chrf"] == second.values["chrf"]
    assert first.values["nll"] == pytest.approx(second.values["nll"], rel=1e-6)
    assert first.signature == second.signature
    if beams > 1:
        assert not all_at_once.translations()["translation"].equals(opened(family, files).translations()["translation"])


def test_the_order_of_lines_changes_nothing(files):
    before = opened("marian", files).translations().set_index("source")["translation"]
    for path in files.values():
        path.write_text("\n".join(reversed(path.read_text().splitlines())) + "\n")
    after = opened("marian", files).translations().set_index("source")["translation"]
    assert after[before.index].equals(before)


@pytest.mark.parametrize("lowercase", [False, True])
def test_scores_are_those_of_sacrebleu_to_the_last_digit(files, lowercase):
    text = files["reference"].read_text().split("\n")
    text[2] = text[2].upper()
    files["reference"].write_text("\n".join(text))
    judged = opened("marian", files, metric="ter", lowercase=lowercase, max_new_tokens=6)
    found, made = judged.evaluate("report"), judged.translations("report")
    scorers = {
        "bleu": sacrebleu.BLEU(lowercase=lowercase),
        "chrf": sacrebleu.CHRF(lowercase=lowercase),
        "ter": sacrebleu.TER(),
    }
    assert next(iter(found.values)) == "ter"
    for name, scorer in scorers.items():
        expected = scorer.corpus_score(list(made["translation"]), [list(made["reference"])])
        assert found.values[name] == expected.score
        assert judged.signature()["sacrebleu"][name] == str(scorer.get_signature())


def random_sentences(rng: np.random.Generator, n: int) -> list[str]:
    words = ["a", "the", "The", "cat", "sat,", "água", "é", "on", "mat."]
    return [" ".join(rng.choice(words, rng.integers(1, 9))) for _ in range(n)]


@pytest.mark.parametrize("name", ["bleu", "chrf", "ter"])
def test_a_bootstrap_resample_scores_as_sacrebleu_scores_its_sentences(name):
    from headlab.metrics.overlap import Overlap

    rng = np.random.default_rng(1)
    scorer = {"bleu": sacrebleu.BLEU, "chrf": sacrebleu.CHRF, "ter": sacrebleu.TER}[name]()
    references, good = random_sentences(rng, 30), random_sentences(rng, 30)
    columns = Overlap([name]).columns(good, [(text,) for text in references])
    for weights in next(iter(drawn_counts(30, 20, seed=0))):
        drawn = [place for place, times in enumerate(weights.astype(int)) for _ in range(times)]
        sums = {column: weights @ values for column, values in columns.items()}
        expected = scorer.corpus_score([good[i] for i in drawn], [[references[i] for i in drawn]]).score
        assert float(metric(name).value(sums)) == expected


def test_the_paired_bootstrap_agrees_with_sacrebleus_own():
    """Better by copying half of the references: the interval excludes 0, as sacrebleu's p value says."""
    import pandas as pd
    from sacrebleu.significance import PairedTest

    from headlab.metrics.overlap import Overlap

    rng = np.random.default_rng(2)
    references, worse = random_sentences(rng, 60), random_sentences(rng, 60)
    better = [r if place % 2 else w for place, (r, w) in enumerate(zip(references, worse))]
    overlap = Overlap(["bleu"])
    tables = [pd.DataFrame(overlap.columns(texts, [(r,) for r in references])) for texts in (better, worse)]
    row = paired_bootstrap(tables[0], tables[1:], [metric("bleu")], seed=0).loc[(0, "bleu")]
    _, theirs = PairedTest([("b", better), ("w", worse)], {"BLEU": sacrebleu.BLEU()}, [references], "bs", 300)()
    assert row["baseline"] == theirs["BLEU"][0].score and row["value"] == theirs["BLEU"][1].score
    assert row["ci_low"] > 0 and theirs["BLEU"][1].p_value < 0.05


def test_length_ratio_is_worse_the_farther_from_one():
    ratio = metric("length_ratio")
    assert ratio.drop(1.0, 1.4) == pytest.approx(0.4) and ratio.drop(1.0, 0.7) == pytest.approx(0.3)
    assert ratio.drop(0.5, 1.1) == pytest.approx(-0.4)


def test_a_sweep_decodes_nothing_twice(files, tmp_path, monkeypatch):
    judged = opened("marian", files, max_new_tokens=6)
    heads = Heads(judged.model)
    ordering = order(score("random", heads, judged, seed=5), name="mine")
    run = tmp_path / "run"
    first = sweep(heads, judged, ordering, [0, 6], seeds=1, run=run)
    saved = {path.stem: path for path in (run / "translations").iterdir()}
    assert set(first["run"]) == set(saved)
    for _, row in first[first["metric"] == "bleu"].iterrows():
        lines = [json.loads(line) for line in saved[row["run"]].read_text(encoding="utf-8").splitlines()]
        assert [line["example"] for line in lines] == judged.split("report").tolist()
        texts = [[line[side] for line in lines] for side in ("translation", "reference")]
        assert row["value"] == sacrebleu.corpus_bleu(texts[0], [texts[1]]).score
    # A run that was killed: its row is missing, and its last line was cut off.
    key = first[first["n_removed"] == 6]["run"].iloc[0]
    (run / "rows" / f"{key}.parquet").unlink()
    text = saved[key].read_text(encoding="utf-8")
    saved[key].write_text(text[:-20], encoding="utf-8")
    decoded = []
    real = decoding.generate
    monkeypatch.setattr(
        decoding, "generate", lambda model, ids, *rest: (decoded.append(len(ids)), real(model, ids, *rest))[1]
    )
    again = sweep(heads, judged, ordering, [0, 6], seeds=1, run=run)
    assert sum(decoded) == 1 and saved[key].read_text(encoding="utf-8") == text
    assert again.drop(columns="seconds").equals(first.drop(columns="seconds"))


def test_nll_alone_decodes_nothing_and_needs_no_sacrebleu(files, monkeypatch, tmp_path):
    monkeypatch.setattr(decoding, "generate", None)
    judged = opened("marian", files, metric="nll")
    found = judged.evaluate()
    assert list(found.values) == ["nll", "next_token_accuracy"]
    assert found.values["nll"] == pytest.approx(found.examples["nll"].sum() / found.examples["tokens"].sum())
    assert "sacrebleu" not in judged.signature()
    with judged.keeping(tmp_path, "key"):
        judged.evaluate()
    assert not (tmp_path / "translations").exists()


@pytest.mark.parametrize("idle", [{"beams": 2}, {"max_new_tokens": 5}, {"lowercase": True}, {"tokenize": "zh"}])
def test_options_of_decoding_are_refused_where_nothing_is_decoded(idle, files):
    with pytest.raises(UsageError, match=f"{next(iter(idle))} is about translations"):
        opened("marian", files, metric="nll", **idle)


def test_a_split_without_text_is_refused(files, tmp_path):
    for name in files:
        (tmp_path / f"{name}.txt").write_text(f"{WORDS[0]}\n\n\n\n")
        files[name] = tmp_path / f"{name}.txt"
    judged = opened("marian", files, metric="nll")
    full = next(name for name in ("select", "report") if 0 in judged.split(name))
    assert judged.evaluate(full).values["nll"] > 0
    with pytest.raises(DataError, match="has text on both sides"):
        judged.evaluate("report" if full == "select" else "select")


def test_kept_translations_that_were_edited_are_made_anew(files, tmp_path):
    judged = opened("marian", files, max_new_tokens=6)
    with judged.keeping(tmp_path, "mask"):
        whole = judged.evaluate().examples
    path = next((tmp_path / "translations").glob("*.jsonl"))
    lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    lines[0]["example"], lines[1]["translation"], lines[2]["n_tokens"] = [1], None, "3"
    lines[3]["source"] = "of another text"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines) + "5\n[]\n", encoding="utf-8")
    again = opened("marian", files, max_new_tokens=6)
    with again.keeping(tmp_path, "mask"):
        pd.testing.assert_frame_equal(again.evaluate().examples, whole)


def test_decoding_that_never_ends_is_bounded_and_flagged(files):
    judged = opened("marian", files)
    with torch.no_grad():
        judged.network.final_logits_bias[0, 1] = -1e9  # the end token is never chosen
    made = judged.translations()
    asked = made["source"] != ""
    assert (~made.loc[asked, "finished"]).all()
    limits = [min(64, 16 * math.ceil((3 * (len(text.split()) + 1) + 20) / 16)) for text in made.loc[asked, "source"]]
    assert made.loc[asked, "n_tokens"].tolist() == limits
    assert judged.evaluate().values["unfinished"] == 1.0


def test_empty_outputs_are_counted_beside_blank_sources(files):
    judged = opened("marian", files)
    with torch.no_grad():
        judged.network.final_logits_bias[0, 1] = 1e9  # the end token comes at once
    found = judged.evaluate()
    assert found.values["empty_outputs"] == 1.0 and found.values["bleu"] == 0.0 and found.values["length_ratio"] == 0.0
    assert found.examples["decoded"].sum() == N - 1 and found.examples["empty"].tolist()[4] == 0
    assert judged.counts["n_blank_sources"] == 1 and judged.counts["n_blank_references"] == 1


def test_gradients_and_scores_see_all_three_kinds(files):
    judged = opened("marian", files, metric="nll")
    heads = Heads(judged.model)
    found = score("gradient", heads, judged)
    assert found.index.get_level_values("kind").unique().tolist() == ["encoder", "decoder", "cross"]
    assert (found > 0).all()
    alone = score("ablation", heads, judged)
    complete = judged.evaluate("select").examples["loss"].mean()
    with heads.masked(HeadMask.removing("X1H2", like=heads)):
        without = judged.evaluate("select").examples["loss"].mean()
    assert alone[("cross", 1, 2)] == pytest.approx(without - complete, rel=1e-4)
