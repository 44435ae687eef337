"""Data files: formats, headers, and what is said about files that cannot be read."""

from __future__ import annotations

import gzip
import json

import pytest

from headlab.base.errors import DataError, UsageError
from headlab.tasks.data.records import open_table
from headlab.tasks.running.labelled import read_labelled
from headlab.tasks.running.options import Options

RECORDS = [("a good film", "1"), ('it says "no" , twice', "0"), ("émigré ☃", "1")]


def write(folder, name: str, text: str, encoding: str = "utf-8"):
    data = text.encode(encoding)
    path = folder / name
    path.write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
    return path


def quoted(cell: str) -> str:
    return '"' + cell.replace('"', '""') + '"'


FILES = {
    "bare.tsv": "".join(f"{text}\t{label}\n" for text, label in RECORDS),
    "bare.tsv.gz": "".join(f"{text}\t{label}\n" for text, label in RECORDS),
    "windows.tsv": "\ufeff" + "".join(f"{text}\t{label}\r\n" for text, label in RECORDS),
    "header.tsv": "sentence\tlabel\n" + "".join(f"{text}\t{label}\n" for text, label in RECORDS),
    "other_order.tsv": "label\tid\tText\n" + "".join(f"{label}\t7\t{text}\n" for text, label in RECORDS),
    "header.csv": "text,label\n" + "".join(f"{quoted(text)},{label}\n" for text, label in RECORDS),
    "bare.csv": "".join(f"{quoted(text)},{label}\n" for text, label in RECORDS),
    "lines.jsonl": "\n\n".join(json.dumps({"text": text, "label": int(label)}) for text, label in RECORDS),
    "lines.jsonl.gz": "".join(json.dumps({"content": text, "class": label}) + "\n" for text, label in RECORDS),
}


@pytest.mark.parametrize("name", FILES)
def test_every_format_gives_the_same_records(tmp_path, name):
    data = read_labelled(write(tmp_path, name, FILES[name]), Options())
    assert list(zip(data.texts, data.labels, strict=True)) == RECORDS
    assert data.name == name


def test_named_columns_are_used(tmp_path):
    path = write(tmp_path, "named.csv", "text,other text,stars\nwrong,right,5\n")
    data = read_labelled(path, Options(text_column="other text", label_column="stars"))
    assert (data.texts, data.labels) == (["right"], ["5"])
    bare = write(tmp_path, "numbers.tsv", "1\tx\tright\n2\tx\tagain\n")
    data = read_labelled(bare, Options(text_column="2", label_column="0"))
    assert (data.texts, data.labels) == (["right", "again"], ["1", "2"])


def test_a_packed_file_has_the_hash_of_the_plain_one(tmp_path):
    plain, packed = (read_labelled(write(tmp_path, n, FILES[n]), Options()) for n in ("bare.tsv", "bare.tsv.gz"))
    assert plain.sha256 == packed.sha256
    assert plain.sha256 != read_labelled(write(tmp_path, "header.tsv", FILES["header.tsv"]), Options()).sha256


def test_a_folder_is_read_in_order(tmp_path):
    write(tmp_path, "b.jsonl", '{"text": "second", "label": 0, "more": 1}')
    write(tmp_path, "a.jsonl", '{"text": "first", "label": 1}')
    write(tmp_path, "README.md", "not data")
    table, name, _ = open_table(tmp_path)
    assert [row["text"] for row in table.rows] == ["first", "second"] and name == "a.jsonl,b.jsonl"
    assert table.columns == ("text", "label")


@pytest.mark.parametrize(
    ("name", "data", "message", "remedy"),
    [
        ("none.tsv", None, "There is no file", "Check the path"),
        ("empty.tsv", b"", "is empty", "with text"),
        ("blank.jsonl", b"\n \n", "is empty", "with text"),
        ("latin.tsv", "good\t1\ncaf\xe9\t0\n".encode("latin-1"), "line 2 holds the byte 0xe9", "Convert it to UTF-8"),
        ("bad.jsonl", b'{"text": "x", "label": 1}\n{"text": \n', "line 2 is not JSON", "one JSON object a line"),
        ("list.jsonl", b"[1, 2]\n", "line 1 is no JSON object", '"label"'),
        ("null.jsonl", b'{"text": null, "label": 1}\n', "line 1: the value of 'text' is None", "Correct"),
        ("ragged.tsv", b"good\t1\nbad\n", "line 2 has 1 columns, not 2", "Correct the line"),
        ("header.csv", b"text,label\n", "a header and nothing else", "at least one record"),
        ("names.csv", b"text,stars\nx,1\n", "recognised as the label", "'text', 'stars'"),
        ("three.tsv", b"a b\tc d\t1\n", "recognised as the text", "'0', '1', '2'"),
        ("what.parquet", b"PAR1", "unknown format '.parquet'", ".jsonl, .csv or .tsv"),
        ("torn.tsv.gz", b"\x1f\x8b\x08\x00rest", "cannot be read", "Check"),
        ("plain.tsv.gz", b"good\t1\n", "cannot be read", "Check"),
    ],
)
def test_unusable_files_say_what_is_wrong_and_what_to_do(tmp_path, name, data, message, remedy):
    if data is not None:
        (tmp_path / name).write_bytes(data)
    with pytest.raises(DataError) as caught:
        read_labelled(tmp_path / name, Options())
    assert message in caught.value.cause and remedy in caught.value.remedy
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["header.csv", "header.tsv", "lines.jsonl"])
def test_a_wrong_column_lists_those_there_are(tmp_path, name):
    path = write(tmp_path, name, FILES[name])
    with pytest.raises(DataError, match="no column 'txt'") as caught:
        read_labelled(path, Options(text_column="txt"))
    assert "'label'" in caught.value.remedy


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"limit": 0}, "limit = 0"),
        ({"batch_size": 0}, "batch_size = 0"),
        ({"max_length": 1}, "max_length = 1"),
        ({"batchsize": 2}, "batch_size"),
        ({"train_data": "x"}, "does not use"),
        ({"pad_side": "top"}, "left, right"),
    ],
)
def test_options_out_of_range(options, match):
    with pytest.raises(UsageError, match=match):
        Options.of("lm", options, ("train_data",))


@pytest.mark.data
def test_the_public_files_are_read(data_folder):
    data = read_labelled(data_folder / "sst2" / "dev.tsv", Options())
    assert len(data.texts) == 872 and set(data.labels) == {"0", "1"} and data.texts[0] == "one long string of cliches"
    table, name, _ = open_table(data_folder / "blimp")
    assert len(table.rows) == 4_000 and {"sentence_good", "sentence_bad", "UID"} <= set(table.columns)
