"""What the task translation reads, in every format, and what it refuses, with the lines named."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest
import torch

from headlab.base.errors import DataError, UsageError
from headlab.models.demo.parallel import demo_pairs
from headlab.tasks import task
from headlab.tasks.data.languages import pair_of_name
from headlab.tasks.data.parallel import read_pairs, read_testset, read_together
from headlab.tasks.running.translations import Translated, Translations
from tests.support.seq2seq_models import checkpoint

PAIRS = [("w1 w2", "w3"), ('he said "no', "w4 w5"), ("", "w6"), ("w7", "")]
SOURCES, REFERENCES = [a for a, _ in PAIRS], [(b,) for _, b in PAIRS]


def write(path: Path, text: str) -> Path:
    data = text.encode("utf-8")
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
    return path


@pytest.mark.parametrize("ending", [".txt", ".en", ".gz", ".txt.gz", ""])
@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_files_of_lines_keep_blank_ones(tmp_path, ending, newline):
    paths = [
        write(tmp_path / f"{name}{ending}", newline.join(lines) + newline)
        for name, lines in (("a", SOURCES), ("b", [b for (b,) in REFERENCES]))
    ]
    found = read_pairs(*paths, (None, None), "en-pt")
    assert (found.sources, found.references, found.pair) == (SOURCES, REFERENCES, "en-pt")


@pytest.mark.parametrize("header", ["source\treference", "en\tpt", "ref\tsrc", ""])
def test_tables_with_and_without_a_header(tmp_path, header):
    turned = header.startswith("ref")
    rows = [header] * bool(header) + ["\t".join((b, a) if turned else (a, b)) for a, b in PAIRS]
    path = write(tmp_path / "pairs.tsv", "\n".join(rows) + "\n")
    found = read_together(path, (None, None), "en-pt")
    assert (found.sources, found.references) == (SOURCES, REFERENCES)
    assert read_pairs(path, path, (None, None), "en-pt").sources == SOURCES


def test_columns_by_name(tmp_path):
    path = write(tmp_path / "pairs.tsv", "id\tGerman\tEnglish\n1\tja\tyes\n2\tnein\tno\n")
    found = read_together(path, ("English", "German"), "")
    assert found.sources == ["yes", "no"] and found.references == [("ja",), ("nein",)]
    with pytest.raises(DataError, match="no column 'French'") as caught:
        read_together(path, ("French", "German"), "")
    assert "English" in caught.value.remedy


def test_json_lines_flat_and_nested(tmp_path):
    flat = write(tmp_path / "flat.jsonl", "\n".join(json.dumps({"src": a, "target": b}) for a, b in PAIRS))
    nested = write(
        tmp_path / "nested.jsonl", "\n".join(json.dumps({"translation": {"en": a, "pt": b}}) for a, b in PAIRS)
    )
    for path, pair in ((flat, ""), (nested, "en-pt")):
        found = read_together(path, (None, None), pair)
        assert (found.sources, found.references) == (SOURCES, REFERENCES)
    backwards = read_together(nested, (None, None), "pt-en")
    assert backwards.sources == [b for (b,) in REFERENCES]
    with pytest.raises(DataError, match="line 1 has no text in 'de'; it has en, pt"):
        read_together(nested, (None, None), "en-de")


def test_a_format_does_not_change_the_hash(tmp_path):
    table = write(tmp_path / "pairs.tsv", "\n".join("\t".join(pair) for pair in PAIRS))
    sides = [write(tmp_path / n, "\n".join(s) + "\n") for n, s in (("a", SOURCES), ("b", [b for (b,) in REFERENCES]))]
    assert read_together(table, (None, None), "").sha256 == read_pairs(*sides, (None, None), "").sha256


@pytest.mark.parametrize(
    "extra, message", [(1, "line 3 of b.txt without counterpart"), (3, "lines 3 to 5 of b.txt without counterpart")]
)
def test_files_of_different_length_name_the_lines(tmp_path, extra, message):
    write(tmp_path / "a.txt", "one\ntwo\n")
    write(tmp_path / "b.txt", "um\ndois\n" + "x\n" * extra)
    with pytest.raises(DataError, match=message):
        read_pairs(tmp_path / "a.txt", tmp_path / "b.txt", (None, None), "")


def test_a_line_of_a_table_with_another_number_of_columns_is_named(tmp_path):
    path = write(tmp_path / "pairs.tsv", "a\tb\nc\td\te\n")
    with pytest.raises(DataError, match="line 2 has 3 columns"):
        read_together(path, (None, None), "")


def test_one_language_alone_is_refused(tmp_path):
    with pytest.raises(DataError, match="lines of one language"):
        read_together(write(tmp_path / "a.txt", "one\n"), (None, None), "")


@pytest.mark.parametrize(
    "options, message",
    [
        ({"source": "a.txt"}, "source is given without a reference"),
        ({"reference": "a.txt"}, "reference is given without a source"),
        ({"source": "a", "reference": "b", "testset": "wmt14"}, "source and testset both name the data"),
        ({"metric": "blue"}, "metric of the task translation: 'blue'"),
        ({"beams": 0}, "beams = 0"),
        ({"max_new_tokens": 0}, "max_new_tokens = 0"),
        ({"tokenise": "13a"}, "option of the task"),
        ({"tokenize": "nonsense"}, "tokenizer of sacrebleu 'nonsense'"),
        ({"pair": "en-de"}, "English and Portuguese, not en-de"),
    ],
)
def test_wrong_options(options, message):
    with pytest.raises((UsageError, DataError), match=message) as caught:
        task("translation", checkpoint("marian"), **options)
    assert caught.value.remedy


def test_files_of_blank_lines_are_refused(tmp_path):
    sides = [write(tmp_path / "a.txt", "\nw1\n"), write(tmp_path / "b.txt", "w2\n\n")]
    with pytest.raises(DataError, match="no line with text on both sides"):
        task("translation", checkpoint("marian"), source=sides[0], reference=sides[1])


def test_test_sets_of_sacrebleu(monkeypatch, tmp_path):
    from sacrebleu import utils

    def no_network(*_):
        raise OSError("no route to host")

    with pytest.raises(UsageError, match="test set of sacrebleu 'wmt41'"):
        read_testset("wmt41", "en-de")
    with pytest.raises(UsageError, match="no pair en-pt") as caught:
        read_testset("wmt14", "en-pt")
    assert "en-de" in caught.value.remedy
    monkeypatch.setattr(utils, "get_source_file", no_network)
    with pytest.raises(DataError, match=r"cannot download wmt14 en-de: no route to host") as caught:
        read_testset("wmt14", "en-de")
    assert "--source" in caught.value.remedy
    # As sacrebleu leaves it after a download, with two references.
    paths = [str(write(tmp_path / name, f"{name} 1\n{name} 2\n")) for name in ("src", "ref", "ref2")]
    monkeypatch.setattr(utils, "get_source_file", lambda *_: paths[0])
    monkeypatch.setattr(utils, "get_reference_files", lambda *_: paths[1:])
    found = read_testset("wmt14", "en-de")
    assert found.sources == ["src 1", "src 2"] and found.references == [("ref 1", "ref2 1"), ("ref 2", "ref2 2")]


def test_two_references_score_as_sacrebleu_scores_them(monkeypatch, tmp_path):
    import sacrebleu
    from sacrebleu import utils

    sides = {"src": ["w1 w2 w3", "w4 w5", "w6"], "ref": ["w1 w2", "w4", "w6 w7"], "ref2": ["w3 w1", "w5 w4 w4", "w1"]}
    paths = [str(write(tmp_path / name, "\n".join(lines) + "\n")) for name, lines in sides.items()]
    monkeypatch.setattr(utils, "get_source_file", lambda *_: paths[0])
    monkeypatch.setattr(utils, "get_reference_files", lambda *_: paths[1:])
    judged = task("translation", checkpoint("marian"), testset="wmt14", pair="en-de")
    made = list(judged.translations()["translation"])
    scorer = sacrebleu.BLEU()
    assert judged.evaluate().values["bleu"] == scorer.corpus_score(made, [sides["ref"], sides["ref2"]]).score
    assert judged.signature()["sacrebleu"]["bleu"] == str(scorer.get_signature())


def test_languages_of_multilingual_models(tmp_path):
    sides = {"source": write(tmp_path / "a", "w1 w2\n"), "reference": write(tmp_path / "b", "w3\n")}
    model = checkpoint("nllb")
    with pytest.raises(UsageError, match="no source language was given") as caught:
        task("translation", model, **sides)
    assert "eng_Latn" in caught.value.remedy
    with pytest.raises(UsageError, match="no target language was given"):
        task("translation", model, source_language="eng_Latn", **sides)
    with pytest.raises(UsageError, match="no token for the target language 'deu_Latn'"):
        task("translation", model, source_language="eng_Latn", target_language="deu_Latn", **sides)
    with pytest.raises(UsageError, match="no token for the source language 'en'"):
        task("translation", model, pair="en-pt", **sides)  # NLLB writes eng_Latn
    judged = task("translation", model, source_language="por_Latn", target_language="eng_Latn", **sides)
    batch = next(judged.batches())
    code = model.tokenizer.convert_tokens_to_ids
    assert batch.inputs["input_ids"][0, 0] == code("por_Latn") and batch.source.special[0, 0]
    assert batch.inputs["decoder_input_ids"][0, :2].tolist() == [2, code("eng_Latn")]
    assert not batch.extra["counted"][0, 0] and batch.extra["counted"][0, 1:].all()
    assert judged.signature()["languages"] == ["por_Latn", "eng_Latn"]


def test_a_language_that_closes_the_target_starts_the_decoder(tmp_path):
    """MBart of 25 languages writes `X </s> pt_XX`, and its decoder is shown `pt_XX X </s>`."""
    from tests.support.seq2seq_models import mbart_tokenizer

    sides = {"source": write(tmp_path / "a", "w1 w2\n"), "reference": write(tmp_path / "b", "w3\n")}
    model = checkpoint("mbart")
    model.tokenizer = mbart_tokenizer()
    code = model.tokenizer.convert_tokens_to_ids("pt_XX")
    model.tokenizer.set_tgt_lang_special_tokens = lambda _: closes_with(model.tokenizer, "pt_XX")
    judged = task("translation", model, pair="en-pt", **sides)
    batch = next(judged.batches())
    word = model.tokenizer.convert_tokens_to_ids("▁w3")
    assert batch.extra["labels"].tolist() == [[word, 2, code]]
    assert batch.inputs["decoder_input_ids"].tolist() == [[code, word, 2]]
    assert batch.extra["counted"].tolist() == [[True, True, False]]
    assert judged.decoding.start == code and judged.decoding.forced is None
    judged.network.generation_config.suppress_tokens = None
    made = judged.translations().loc[0]
    shown = [code]
    with torch.no_grad():
        while len(shown) < 4:
            scores = model.model(input_ids=batch.inputs["input_ids"], decoder_input_ids=torch.tensor([shown])).logits
            shown.append(int(scores[0, -1].argmax()))
    expected = shown[1 : shown.index(2, 1)] if 2 in shown[1:] else shown[1:]
    assert model.tokenizer.decode(expected, skip_special_tokens=True).strip() in made["translation"]


def closes_with(tokenizer, language: str) -> None:
    from tokenizers import processors

    ends = [("</s>", 2), (language, tokenizer.convert_tokens_to_ids(language))]
    tokenizer._tokenizer.post_processor = processors.TemplateProcessing(
        single=f"$A </s> {language}", special_tokens=ends
    )


def test_a_model_of_one_pair_refuses_languages(tmp_path):
    sides = {"source": write(tmp_path / "a", "w1 w2\n"), "reference": write(tmp_path / "b", "w3\n")}
    with pytest.raises(UsageError, match="has no tokens for languages, and 'eng_Latn' was given"):
        task("translation", checkpoint("marian"), source_language="eng_Latn", **sides)


def test_the_prefix_of_t5_is_written_before_each_source(tmp_path):
    sides = {"source": write(tmp_path / "a", "w1 w2\n\n"), "reference": write(tmp_path / "b", "w3\nw4\n")}
    model = checkpoint("t5")
    model.model.config.task_specific_params = {"translation_en_to_de": {"prefix": "say: "}}
    say = model.tokenizer.convert_tokens_to_ids("say:")
    for options, there in (({"pair": "en-de"}, True), ({"prefix": "say: "}, True), ({"pair": "en-pt"}, False)):
        judged = task("translation", model, batch_size=1, **sides, **options)
        first = [batch.inputs["input_ids"][0, 0].item() == say for batch in judged.batches()]
        assert first == [False, there]  # the blank line, which is shorter, comes first and has none
        assert judged.translations()["translation"].tolist()[1] == ""


def test_single_stacks_are_refused():
    model = checkpoint("marian")
    model.is_encoder_decoder = False
    with pytest.raises(UsageError, match="no encoder-decoder"):
        task("translation", model)


def test_long_lines_are_cut_and_counted(tmp_path):
    sides = {
        "source": write(tmp_path / "a", "w1 " * 90 + "\nw1\n"),
        "reference": write(tmp_path / "b", "w3\n" + "w4 " * 70),
    }
    judged = task("translation", checkpoint("marian"), **sides)
    assert judged.counts["n_cut"] == 2
    widest = max(batch.inputs["input_ids"].shape[1] for batch in judged.batches())
    assert widest == judged.max_length == 64
    assert judged.translations()["reference"].tolist()[1] == "w4 " * 70  # BLEU sees all of it


def test_pairs_in_names():
    names = {"Helsinki-NLP/opus-mt-en-de": "en-de", "demo:firefox-pt-en": "pt-en", "t5-small": "", "runs/marian": ""}
    assert {name: pair_of_name(name) for name in names} == names


def test_the_packages_own_pairs():
    pairs = demo_pairs()
    assert len(pairs) >= 150
    assert all(text == text.strip() and text and "\t" not in text for pair in pairs for text in pair)
    assert len({a for a, _ in pairs}) == len({b for _, b in pairs}) == len(pairs)
    judged = task("translation", checkpoint("marian"), limit=4)
    assert judged.signature()["data"] == "demo:parallel/en-pt"
    backwards = task("translation", checkpoint("marian"), limit=4, pair="pt-en")
    assert [backwards.sources[i] for i in range(4)] == [b for _, b in pairs[:4]]


def test_kept_translations_survive_a_cut_line_and_odd_characters(tmp_path):
    path = tmp_path / "folder" / "kept.jsonl"
    made = [Translated(place, f"s{place}", "r", "a\u2028b \x85 “ç”", 3, True) for place in (2, 0)]
    Translations(path).add(made)
    with path.open("a") as file:
        file.write('{"example": 7, "sour')
    again = Translations(path)
    assert len(again) == 2 and again[0] == made[1] and 7 not in again
    again.add([Translated(7, "s", "r", "t", 1, False)])
    assert Translations(path)[7].translation == "t"
    again.sort()
    assert [json.loads(line)["example"] for line in path.read_text(encoding="utf-8").split("\n")[:-1]] == [0, 2, 7]
