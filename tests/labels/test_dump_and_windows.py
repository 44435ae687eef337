"""Sinks at Gu's length, text by text; the labels that read files, through the command line."""

from __future__ import annotations

import math
from pathlib import Path

import pandas as pd
import pytest
import torch

from headlab.attention.heads import Heads
from headlab.base.errors import DataError, UsageError
from headlab.models import open_model
from headlab.models.texts.windows import token_windows
from tests.support.planted_maps import everywhere, on_first, planted
from tests.support.reference import make_batch, random_text


def test_sink_share_decides_for_each_text_alone() -> None:
    """Gu et al. 2024 (2410.10781), code: mean over samples of alpha_1 > .3, not of alpha_1 itself; T = 64."""

    def sometimes(ids: torch.Tensor) -> torch.Tensor:
        return on_first(ids) if int(ids[0]) == 10 else everywhere(ids)

    texts = [random_text(64, seed, separators=False, first=False) for seed in range(8)]
    for number, (ids, _) in enumerate(texts):
        ids[0] = 10 if number < 6 else 11
    row = Heads(planted([sometimes], causal=True)).observe([make_batch(texts)], labels=["sink"]).iloc[0]
    harmonic = sum(1 / t for t in range(1, 65)) / 64
    assert row["sink_share"] == 0.75
    assert math.isclose(row["sink_score"], 0.75 + 0.25 * harmonic, abs_tol=1e-5)


def test_windows_have_one_length(tiny_lm: Path) -> None:
    checkpoint = open_model(str(tiny_lm))
    texts = ["the cat sleeps and the dog runs"] * 10  # 70 tokens
    batches = token_windows(checkpoint, texts, length=16, batch_size=3)
    assert [tuple(batch.source.ids.shape) for batch in batches] == [(3, 16), (1, 16)]
    assert [batch.examples for batch in batches] == [(0, 1, 2), (3,)]
    with pytest.raises(DataError, match="70 tokens"):
        token_windows(checkpoint, texts, length=100)
    with pytest.raises(UsageError, match="start token"):
        token_windows(checkpoint, texts, length=16, bos=True)
    checkpoint.tokenizer.bos_token = "[CLS]"
    (batch,) = token_windows(checkpoint, texts, length=16, bos=True)
    assert (batch.source.ids[:, 0] == checkpoint.tokenizer.bos_token_id).all() and batch.source.special[:, 0].all()


def test_dump_reads_a_treebank(tiny_classifier: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from typer.testing import CliRunner

    from headlab.cli.application import application

    sentence = (
        "1\tthe\t_\t_\t_\t_\t2\tdet\t_\t_\n2\tcat\t_\t_\t_\t_\t3\tnsubj\t_\t_\n3\tsleeps\t_\t_\t_\t_\t0\troot\t_\t_"
    )
    path = tmp_path / "tiny.conllu"
    path.write_text("\n\n".join([sentence] * 30) + "\n\n", encoding="utf-8")
    done = CliRunner().invoke(
        application(),
        [
            "dump",
            str(tiny_classifier),
            "--conllu",
            str(path),
            "--out",
            str(tmp_path / "out"),
            "--quiet",
            "--labels",
            "sink,syntactic:det",
        ],
    )
    assert done.exit_code == 0, done.output
    table = pd.read_parquet(tmp_path / "out" / "heads.parquet")
    assert (table["syntactic:det:dependent-head_n"] == 15).all()
    assert "syntactic:nsubj:dependent-head" not in table.columns


def test_dump_limits_a_treebank_for_its_labels_too_and_counts_the_words_that_were_cut(
    tiny_classifier: Path, tmp_path: Path
) -> None:
    """The first 22 of 30 sentences, even and odd ones 11 each; with 5 tokens, two of them special, the last word of
    each goes."""
    import json

    from typer.testing import CliRunner

    from headlab.cli.application import application

    lines = ["the\t2\tdet", "cat\t4\tnsubj", "the\t2\tdet", "sleeps\t0\troot"]
    rows = [f"{i}\t{w}\t_\t_\t_\t_\t{h}\t{r}\t_\t_" for i, (w, h, r) in enumerate((x.split("\t") for x in lines), 1)]
    path = tmp_path / "tiny.conllu"
    path.write_text("\n\n".join(["\n".join(rows)] * 30) + "\n\n", encoding="utf-8")
    done = CliRunner().invoke(
        application(),
        [
            "dump",
            str(tiny_classifier),
            "--conllu",
            str(path),
            "--out",
            str(tmp_path / "out"),
            "--quiet",
            "--labels",
            "syntactic",
            "--limit",
            "22",
            "--max-length",
            "5",
        ],
    )
    assert done.exit_code == 0, done.output
    table = pd.read_parquet(tmp_path / "out" / "heads.parquet")
    assert (table["syntactic:det:dependent-head_n"] == 22).all()  # two determiners in each of 11 odd sentences
    assert (table["syntactic:nsubj:dependent-head_n"] == 0).all()  # its verb is the word that was cut
    notes = json.loads((tmp_path / "out" / "meta.json").read_text())["notes"]
    assert notes["words_lost"] == {"syntactic": {"texts_cut": 22, "words_cut": 22, "words_without_piece": 0}}
