"""Alignments and treebanks on a model with an encoder and a decoder: which queries and keys belong to which words."""

from __future__ import annotations

from pathlib import Path

import torch
from transformers import AutoTokenizer, BartConfig, BartForConditionalGeneration

from headlab.attention.heads import Heads
from headlab.attention.observe.observation import input_context
from headlab.labels import load_labels
from headlab.models import Checkpoint
from headlab.models.texts.encoding import text_batches


def tiny_translator(folder: Path) -> Checkpoint:
    torch.manual_seed(0)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    config = BartConfig(
        vocab_size=len(tokenizer),
        d_model=32,
        encoder_layers=1,
        decoder_layers=1,
        encoder_attention_heads=4,
        decoder_attention_heads=4,
        encoder_ffn_dim=32,
        decoder_ffn_dim=32,
        max_position_embeddings=64,
        pad_token_id=0,
        bos_token_id=2,
        eos_token_id=3,
        decoder_start_token_id=3,
    )
    model = BartForConditionalGeneration(config).eval()
    return Checkpoint("tiny", model, tokenizer, max_length=64, is_encoder_decoder=True)


def test_queries_belong_to_the_word_that_they_predict(tiny_classifier: Path, tmp_path: Path) -> None:
    checkpoint = tiny_translator(tiny_classifier)
    files = [tmp_path / name for name in ("source", "target", "gold")]
    for path, line in zip(files, ("the red cat", "the cat red", "0-0 1-2 2-1"), strict=True):
        path.write_text((line + "\n") * 24, encoding="utf-8")
    labels = load_labels(["alignment"], alignments=files)
    heads = Heads(checkpoint)
    batch = labels[0].input.batches(input_context(heads.subject))[0]
    words, ids = batch.extra["query_words"][0], batch.target.ids[0]
    spelt = checkpoint.tokenizer.convert_ids_to_tokens(ids.tolist())
    # The decoder reads </s> [CLS] the cat red; it predicts [CLS] the cat red [SEP].
    assert spelt == ["[SEP]", "[CLS]", "the", "cat", "red"]
    assert words.tolist() == [-1, 0, 1, 2, -1]
    assert batch.extra["key_words"][0].tolist() == [-1, 0, 1, 2, -1]
    table = heads.observe(text_batches(checkpoint, ["the cat sleeps"]), labels=labels)
    cross = table.loc["cross"]
    assert (cross["alignment_n"] == 12 * 3).all() and table.loc["encoder", "alignment"].isna().all()
    assert cross["alignment_aer"].between(0, 1).all()
    maps = heads.capture(batch)[("cross", 0)][1].clone()  # an odd sentence; all are the same
    maps[:, :, [0, 4]] = 0  # special tokens are no words
    right = sum((maps[:, query].argmax(-1) == key).double() for query, key in ((1, 1), (2, 3), (3, 2))) / 3
    assert cross["alignment_score"].tolist() == right.tolist()


def test_a_treebank_is_read_by_the_encoder_alone(tiny_classifier: Path, tmp_path: Path) -> None:
    checkpoint = tiny_translator(tiny_classifier)
    sentence = "1\tthe\t_\t_\t_\t_\t2\tdet\t_\t_\n2\tcat\t_\t_\t_\t_\t0\troot\t_\t_"
    path = tmp_path / "tiny.conllu"
    path.write_text("\n\n".join([sentence] * 30) + "\n\n", encoding="utf-8")
    labels = load_labels(["syntactic:det:dependent-head"], conllu=path)
    table = Heads(checkpoint).observe(text_batches(checkpoint, ["the cat sleeps"]), labels=labels)
    n = table["syntactic:det:dependent-head_n"]
    assert (n.loc["encoder"] == 15).all() and (n.loc[["decoder", "cross"]] == 0).all()
