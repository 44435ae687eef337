"""`headlab dump`: what every head looks at, as a table with labels, and attention maps where they are asked for."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headlab.base.errors import DataError, UsageError
from headlab.base.registry import Registry
from headlab.cli.options import (
    DataOptions,
    Json,
    Model,
    ModelOptions,
    RunOptions,
    TalkOptions,
    TranslationOptions,
    names,
    numbers,
    require,
)
from headlab.cli.output import Progress, print_json, print_paths, rows, table_text

if TYPE_CHECKING:
    import pandas as pd

    from headlab.attention.heads import Heads
    from headlab.models import Checkpoint
    from headlab.models.texts.batch import Batch
    from headlab.models.texts.places import TokenPlaces
    from headlab.models.texts.words import WordText
    from headlab.runs.maps import AttentionMap

SHOWN_ROWS = 15
SHOWN = ("name", "labels", "entropy_norm", "max_weight", "first_mass", "separator_mass", "self_mass", "prev_mass",
         "next_mass", "distance")  # fmt: skip
LABELS_HELP = (
    "A,B or none. Without it all labels that read the given texts, not those with an input of their own "
    "(copying, duplicate_token, induction, retrieval), which have to be named."
)

Out = Annotated[Path, typer.Option("--out", help="Folder for the results.", show_default=False)]
Text = Annotated[Path | None, typer.Option("--text", help="UTF-8 text file, one text a line (.gz too).")]
Conllu = Annotated[Path | None, typer.Option("--conllu", help="Treebank: its sentences, and syntactic labels.")]
Mentions = Annotated[Path | None, typer.Option("--mentions", help="Coreferent mentions, for the label coreference.")]
Alignments = Annotated[
    str | None, typer.Option("--alignments", help="SOURCE,TARGET,GOLD files (Pharaoh), for the label alignment.")
]
TaskName = Annotated[str | None, typer.Option("--task", help="Read the texts of a task (`headlab list tasks`).")]
Labels = Annotated[str | None, typer.Option("--labels", help=LABELS_HELP)]
Statistics = Annotated[str | None, typer.Option("--statistics", help="A,B; all statistics without it.")]
MapCount = Annotated[int, typer.Option("--maps", min=0, help="Keep the attention maps of the first N texts.")]
Layers = Annotated[str | None, typer.Option("--layers", help="Layers of the maps, such as 0,3-5.")]
HeadNames = Annotated[str | None, typer.Option("--heads", help="Heads of the maps, such as L3H5,L4H0.")]
PerWord = Annotated[bool, typer.Option("--per-word", help="Also write the maps between words, as maps_words.csv.")]


def dump(
    model: Model, opened: ModelOptions, data: DataOptions, translation: TranslationOptions, run: RunOptions,
    talk: TalkOptions, out: Out, text: Text = None, task: TaskName = None, labels: Labels = None,
    statistics: Statistics = None, maps: MapCount = 0, layers: Layers = None, heads: HeadNames = None,
    json: Json = False, conllu: Conllu = None, mentions: Mentions = None, alignments: Alignments = None,
    per_word: PerWord = False,
) -> None:  # fmt: skip
    """Statistics and labels of every head; without --text or --task, of a few pages that come with headlab."""
    from headlab.cli import opening

    files = {"conllu": conllu, "mentions": mentions, "alignments": names(alignments) or None}
    wanted = Wanted(labels, statistics, maps, layers, heads, {name: found for name, found in files.items() if found},
                    per_word, data.limit, data.max_length)  # fmt: skip
    _check_sources(task, text, conllu, data, translation)
    with opening.results_in(out), Progress(quiet=talk.quiet) as progress:
        progress.step(f"opening {model}")
        if task:
            opened_task = opening.open_task(task, model, opened, data, seed=run.seed, **translation.given())
            texts = Texts(opened_task.checkpoint, list(opened_task.batches()), opened_task.signature(), {})
        else:
            texts = _plain_texts(model, opened, data, text, conllu)
        paths, table = _observe(texts, wanted, out, run, progress)
    if texts.checkpoint.is_encoder_decoder and task is None and not talk.quiet:
        print("Note: encoder and decoder were shown the same text. For pairs of sentences add --task translation.",
              file=sys.stderr)  # fmt: skip
    if wanted.left_out and not talk.quiet:
        print(_left_out(wanted.left_out), file=sys.stderr)
    if json:
        print_json({"paths": paths, "notes": texts.notes, "heads": rows(table)})
        return
    print_paths(paths)
    print()
    print(table_text(_named(table), SHOWN, SHOWN_ROWS))


def _check_sources(
    task: str | None, text: Path | None, conllu: Path | None, data: DataOptions, translation: TranslationOptions
) -> None:
    """Raise UsageError where the texts are named twice, or an option belongs to a task that is not there."""
    if task is not None:
        require(Registry("headlab.tasks", "task", hyphenated=True), task)
    named = [f"--{name}" for name, given in (("text", text), ("task", task), ("conllu", conllu)) if given is not None]
    if len(named) > 1:
        raise UsageError(f"{' and '.join(named)} all name the texts.", "Give one of them.")
    if data.data is not None and task is None:
        raise UsageError("--data belongs to a task, and there is no --task.", "Add --task NAME, or use --text FILE.")
    if translation.given() and task is None:
        first = next(iter(translation.given())).replace("_", "-")
        raise UsageError(f"--{first} belongs to the task translation.", "Add --task translation.")


# Labels that read a file of their own, and the option that names it.
FILES_OF = {"syntactic": "conllu", "coreference": "mentions", "alignment": "alignments"}


def _left_out(labels: list[str]) -> str:
    """A line that names the labels that were not computed since nobody named them, and how to have them."""
    own = [name for name in labels if name not in FILES_OF]
    files = [f"{name} (--{FILES_OF[name]})" for name in labels if name in FILES_OF]
    parts = [f"{', '.join(own)} (they bring their own input: name them with --labels)"] if own else []
    parts += [f"{', '.join(files)}"] if files else []
    return f"Labels not computed: {'; '.join(parts)}."


def _sha256(paths: Path | list[str]) -> str:
    files = paths if isinstance(paths, list) else [paths]
    found = hashlib.sha256()
    for path in files:
        try:
            found.update(Path(path).read_bytes())
        except OSError as error:
            raise DataError(f"{path} cannot be read: {error.strerror}.", "Give the path of a file.") from error
    return found.hexdigest()


class Wanted:
    """What a dump is asked for beside the texts; unknown names are refused before a model is loaded."""

    def __init__(
        self, labels: str | None, statistics: str | None, maps: int, layers: str | None, heads: str | None,
        given: dict[str, Any], per_word: bool = False, limit: int | None = None, max_length: int | None = None,
    ) -> None:  # fmt: skip
        from headlab.base.errors import unknown_name
        from headlab.labels import LABELS, default_labels, load_labels
        from headlab.runs.tables import STATISTICS

        needing = [name for name, option in FILES_OF.items() if option in given]
        self.labels = default_labels() + needing if labels is None else [] if labels == "none" else names(labels)
        for label in self.labels:
            require(LABELS, label.partition(":")[0])
        for label, option in FILES_OF.items():
            if option not in given and any(name.partition(":")[0] == label for name in self.labels):
                raise UsageError(f"The label {label} reads a file, and there is no --{option}.", f"Add --{option}.")
        self.files = {name: _sha256(paths) for name, paths in given.items()}
        self._left_out = sorted(set(LABELS.names()) - set(self.labels)) if labels is None else []
        if "conllu" in given:  # its labels read the same sentences as the statistics
            from headlab.labels.syntactic import Treebank

            given = given | {"conllu": Treebank(str(given["conllu"]), limit, max_length)}
        self._read = load_labels(self.labels, **given)
        self.statistics = names(statistics) or None
        for statistic in self.statistics or ():
            if statistic not in STATISTICS:
                raise unknown_name("statistic", statistic, STATISTICS)
        if not maps and (layers or heads):
            raise UsageError("--layers and --heads choose attention maps, and no maps are kept.", "Add --maps N.")
        if per_word and not maps:
            raise UsageError("--per-word writes attention maps, and no maps are kept.", "Add --maps N.")
        self.maps, self.head_names, self.per_word = maps, heads, per_word
        self.layers = numbers(layers, "--layers") if layers else None

    def as_signature(self) -> dict[str, Any]:
        """The part of it that decides what is in the files."""
        return {name: value for name, value in vars(self).items() if not name.startswith("_")}

    @property
    def left_out(self) -> list[str]:
        """The labels that are not computed by default, where --labels is not given."""
        return self._left_out

    @property
    def loaded(self) -> list[Any]:
        """The labels themselves, with the files that they read."""
        return self._read


class Texts:
    """What the heads are shown: the checkpoint, its batches, the signature, and what happened to the texts."""

    def __init__(
        self, checkpoint: Checkpoint, batches: list[Batch], signature: dict, notes: dict,
        places_of: Callable[[int], TokenPlaces] | None = None,
    ) -> None:  # fmt: skip
        self.checkpoint, self.batches, self.signature, self.notes = checkpoint, batches, signature, notes
        self.places_of = places_of  # where the tokens of an example are in their text


def _plain_texts(
    model: str, opened: ModelOptions, data: DataOptions, path: Path | None, conllu: Path | None = None
) -> Texts:
    """The lines of a text file, the sentences of a treebank, or the prose that comes with headlab."""
    from headlab.cli.opening import open_checkpoint
    from headlab.models.demo.texts import demo_prose
    from headlab.models.texts.encoding import batches, encode_texts, read_texts
    from headlab.models.texts.places import blank_words, token_places

    if conllu:
        from headlab.models.texts.treebanks import read_conllu

        texts: Sequence[WordText] = read_conllu(conllu)[: data.limit]
        path = conllu
    else:
        texts = [blank_words(line) for line in (read_texts(path) if path else demo_prose())[: data.limit]]
    lines = [text.text for text in texts]
    checkpoint = open_checkpoint(model, opened)
    encoded = encode_texts(checkpoint, lines, max_length=data.max_length)
    source = {
        "source": path.name if path else "headlab's prose",
        "sha256": hashlib.sha256("\n".join(lines).encode()).hexdigest(),
        "n_texts": len(lines),
        "max_length": data.max_length,
    }
    notes = {"texts_split": encoded.n_split, "chunks": encoded.n_chunks, "texts_too_short": encoded.n_too_short}
    signature = {"model": checkpoint.describe(), "texts": source}
    read = list(batches(encoded, checkpoint, batch_size=data.batch_size))
    return Texts(checkpoint, read, signature, notes, lambda example: token_places(checkpoint, encoded, texts, example))


def _observe(
    texts: Texts, wanted: Wanted, out: Path, run: RunOptions, progress: Progress
) -> tuple[list[Path], pd.DataFrame]:
    """Observe and write everything; a finished run of the same signature is read instead."""
    from headlab.attention.heads import Heads
    from headlab.cli.opening import command_line
    from headlab.report.pictures import write_brief
    from headlab.runs.tables import load_table, open_run, read_meta, save_table, table_path, write_meta

    progress.step("probing and proving")
    heads = Heads(texts.checkpoint)
    kept = _maps(heads, texts, wanted, progress)
    between_words = _between_words(kept) if wanted.per_word else None
    signature = {"command": "dump", **texts.signature, "wanted": wanted.as_signature(), "seed": run.seed}
    state = open_run(out, signature, run.overwrite, command=command_line())
    if state == "resume" and read_meta(out)["finished"] and table_path(out, "heads"):
        table = load_table(out, "heads")
        save_table(table, out, "heads", run.format.value)  # the same table, perhaps in another format now
        _write_maps(out, kept, between_words)  # the same maps, whatever became of their files
        return files(out), table
    progress.step("observing")
    table = heads.observe(texts.batches, wanted.loaded, wanted.statistics, seed=run.seed, progress=progress)
    save_table(table, out, "heads", run.format.value)
    progress.step("drawing")
    _write_maps(out, kept, between_words)
    write_brief(out)
    notes = texts.notes | _lost(heads, wanted) | {"proofs": [f"{p.name} ({p.detail})" for p in heads.proofs]}
    write_meta(out, signature, command=command_line(), notes=notes)
    return files(out), table


def _write_maps(out: Path, kept: list[AttentionMap], between_words: pd.DataFrame | None) -> None:
    if kept:
        from headlab.runs.maps import save_maps

        save_maps(out, kept)
    if between_words is not None:
        from headlab.runs.tables import save_table

        save_table(between_words, out, "maps_words", "csv")


def _between_words(kept: list[AttentionMap]) -> pd.DataFrame:
    """Maps between words; what cannot be had is refused before anything is written."""
    from headlab.runs.word_maps import word_maps

    return word_maps(kept)


def _lost(heads: Heads, wanted: Wanted) -> dict[str, Any]:
    """Words that labels between words have not seen, since they lie beyond the model's limit or have no piece."""
    from headlab.attention.observe.observation import subject_of

    inputs = {label.name.partition(":")[0]: label.input for label in wanted.loaded if hasattr(label.input, "lost")}
    return {"words_lost": {name: given.lost(subject_of(heads)) for name, given in inputs.items()}} if inputs else {}


def _maps(heads: Heads, texts: Texts, wanted: Wanted, progress: Progress) -> list[AttentionMap]:
    """The maps that are asked for; taken first, so that a head that does not exist leaves no folder behind."""
    if not wanted.maps:
        return []
    from headlab.attention.observe.maps import attention_maps
    from headlab.base.masks import parse_heads

    progress.step("keeping maps")
    chosen = parse_heads(wanted.head_names, heads) if wanted.head_names else None
    return attention_maps(heads, texts.batches, wanted.maps, wanted.layers, chosen, texts.places_of)


def files(folder: Path) -> list[Path]:
    """The files of a run that a person would open."""
    found = [*folder.glob("*.parquet"), *folder.glob("*.csv"), *folder.glob("*.json"), *folder.glob("*.safetensors")]
    return sorted(found) + sorted((folder / "figures").glob("*.png"))


def _named(table: pd.DataFrame) -> pd.DataFrame:
    """The table with a column of head names, the labelled heads first, each by its strongest statistic."""
    from headlab.base.masks import head_name

    single = table.index.get_level_values("kind").nunique() == 1
    named = table.copy()
    named.insert(0, "name", [head_name(head, single_stack=single) for head in table.index])
    if "labels" not in named.columns or "max_weight" not in named.columns:
        return named
    first = (named["labels"] != "none").astype(int)
    return named.assign(first=first).sort_values(["first", "max_weight"], ascending=False, kind="stable")
