"""`headlab dump`: what every head looks at, as a table with labels, and attention maps where they are asked for."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from headlab.base.errors import DataError, UsageError, unknown_name
from headlab.base.progress import Progress
from headlab.commands.options import RunRequest, check_plugin, option, read_names, read_numbers, read_path
from headlab.commands.results_folder import results_in, written_files
from headlab.commands.stages import Stages

if TYPE_CHECKING:
    import pandas as pd

    from headlab.attention.heads import Heads
    from headlab.models import Checkpoint
    from headlab.models.texts.batch import Batch
    from headlab.models.texts.places import TokenPlaces
    from headlab.models.texts.words import WordText
    from headlab.runs.maps import AttentionMap

LABELS_HELP = (
    "A,B or none. Without it all labels that read the given texts, not those with an input of their own "
    "(copying, duplicate_token, induction, retrieval), which have to be named."
)


@dataclass(frozen=True, kw_only=True)
class DumpRequest(RunRequest):
    """What every head looks at, on a text file, a treebank, the examples of a task, or pages that come with headlab.

    `labels` None means every label that reads the given texts, () none. `heads` is text, as parse_heads takes it.
    """

    NAME: ClassVar[str] = "dump"
    text: Path | None = option(None, "UTF-8 text file, one text a line (.gz too).", read_path)
    task: str | None = option(None, "Read the texts of a task (`headlab list tasks`).")
    labels: Sequence[str] | None = option(None, LABELS_HELP, read_names)
    statistics: Sequence[str] | None = option(None, "A,B; all statistics without it.", read_names)
    maps: int = option(0, "Keep the attention maps of the first N texts.", least=0)
    layers: Sequence[int] | None = option(None, "Layers of the maps, such as 0,3-5.", read_numbers)
    heads: str | None = option(None, "Heads of the maps, such as L3H5,L4H0.")
    conllu: Path | None = option(None, "Treebank: its sentences, and syntactic labels.", read_path)
    mentions: Path | None = option(None, "Coreferent mentions, for the label coreference.", read_path)
    alignments: Sequence[str | Path] | None = option(
        None, "SOURCE,TARGET,GOLD files (Pharaoh), for the label alignment.", read_names
    )
    per_word: bool = option(False, "Also write the maps between words, as maps_words.csv.")

    def check(self) -> None:
        """Raise UsageError for unknown names and for options that do not go together."""
        super().check()
        self._check_labels()
        self._check_sources()
        if self.statistics:
            from headlab.runs.columns import STATISTICS

            for statistic in self.statistics:
                if statistic not in STATISTICS:
                    raise unknown_name("statistic", statistic, STATISTICS)
        if not self.maps and (self.layers or self.heads):
            raise UsageError("--layers and --heads choose attention maps, and no maps are kept.", "Add --maps N.")
        if not self.maps and self.per_word:
            raise UsageError("--per-word writes attention maps, and no maps are kept.", "Add --maps N.")

    def _check_labels(self) -> None:
        named = {name.partition(":")[0] for name in self.labels or () if name != "none"}
        if named:
            from headlab.labels import LABELS

            for label in named:
                check_plugin(LABELS, label)
        for label, file in self.families().items() if named else ():
            if label in named and file not in self.label_files():
                raise UsageError(f"The label {label} reads a file, and there is no --{file}.", f"Add --{file}.")

    def _check_sources(self) -> None:
        """Raise UsageError where the texts are named twice, or an option belongs to a task that is not there."""
        if self.task is not None:
            from headlab.tasks import TASKS

            check_plugin(TASKS, self.task)
        named = [f"--{name}" for name in ("text", "task", "conllu") if getattr(self, name) is not None]
        if len(named) > 1:
            raise UsageError(f"{' and '.join(named)} all name the texts.", "Give one of them.")
        if self.data is not None and self.task is None:
            cause = "--data belongs to a task, and there is no --task."
            raise UsageError(cause, "Add --task NAME, or use --text FILE.")
        if self.translation() and self.task is None:
            first = next(iter(self.translation())).replace("_", "-")
            raise UsageError(f"--{first} belongs to the task translation.", "Add --task translation.")

    def families(self) -> dict[str, str]:
        """Labels that read a file of their own, and the option that names it, in the order of the options."""
        from headlab.labels import families

        options = [field.name for field in dataclasses.fields(self)]
        known = {name: family.needs for name, family in families().items() if family.needs in options}
        return dict(sorted(known.items(), key=lambda item: options.index(item[1])))

    def label_files(self) -> dict[str, Any]:
        """The files that labels read, by the option that names them."""
        files = {name: getattr(self, name) for name in self.families().values()}
        return {name: file for name, file in files.items() if file}

    def label_names(self) -> list[str]:
        """The labels to compute: those that are named, or all that can be had without an input of their own."""
        from headlab.labels import default_labels

        if self.labels is None:
            return default_labels() + [label for label, file in self.families().items() if file in self.label_files()]
        return [name for name in self.labels if name != "none"]

    def load_labels(self) -> list[Any]:
        """The labels, with the files that they read; raises DataError for a file that cannot be read."""
        from headlab.labels import load_labels

        files = self.label_files()
        if self.conllu:  # its labels read the same sentences as the statistics
            from headlab.labels.syntactic import Treebank

            files["conllu"] = Treebank(str(self.conllu), self.limit, self.max_length)
        return load_labels(self.label_names(), **files)

    def signature(self, texts: Mapping[str, Any]) -> dict[str, Any]:
        """What the run folder's numbers depend on, given what identifies the model and its texts."""
        wanted = {
            "labels": self.label_names(),
            "files": {name: _sha256(files) for name, files in self.label_files().items()},
            "statistics": list(self.statistics or ()) or None,
            "maps": self.maps,
            "head_names": self.heads,
            "per_word": self.per_word,
            "layers": list(self.layers) if self.layers else None,
        }
        return {"command": "dump", **texts, "wanted": wanted, "seed": self.seed}


class DumpResult(NamedTuple):
    """`heads` has a row per head; `notes` say what happened to the texts, `remarks` what a person may want to know."""

    heads: pd.DataFrame
    paths: list[Path]
    notes: dict[str, Any]
    remarks: list[str]


def run(request: DumpRequest, out: str | Path, progress: Progress | None = None) -> DumpResult:
    """Observe every head and write the run folder `out`; a finished run of the same signature is read instead.

    Raises UsageError for a request or a folder that cannot be, DataError for unusable texts, and what opening the
    model raises.
    """
    request.check()
    for files in request.label_files().values():
        _sha256(files)  # a file that is not there, before a model is opened
    out, stages = Path(out), Stages(progress)
    with results_in(out):
        stages.load_libraries()
        labels = request.load_labels()
        stages.begin(f"opening {request.model}")
        texts = _texts_of_task(request) if request.task else _plain_texts(request)
        table = _observe(request, texts, labels, out, stages)
    return DumpResult(table, written_files(out), texts.notes, _remarks(request, texts.checkpoint))


@dataclass(frozen=True)
class _Texts:
    """What the heads are shown: the checkpoint, its batches, the signature, and what happened to the texts."""

    checkpoint: Checkpoint
    batches: list[Batch]
    signature: dict[str, Any]
    notes: dict[str, Any]
    places_of: Callable[[int], TokenPlaces] | None = None  # where the tokens of an example are in their text


def _texts_of_task(request: DumpRequest) -> _Texts:
    task = request.open_task()
    return _Texts(task.model, list(task.batches()), task.signature(), {})


def _plain_texts(request: DumpRequest) -> _Texts:
    """The lines of a text file, the sentences of a treebank, or the prose that comes with headlab."""
    from headlab.models.demo.texts import demo_prose
    from headlab.models.texts.encoding import batches, encode_texts
    from headlab.models.texts.places import blank_words, token_places
    from headlab.models.texts.reading import read_texts

    file = request.conllu or request.text
    if request.conllu:
        from headlab.models.texts.treebanks import read_conllu

        texts: Sequence[WordText] = read_conllu(request.conllu)[: request.limit]
    else:
        lines_of = read_texts(file) if file else demo_prose()
        texts = [blank_words(line) for line in lines_of[: request.limit]]
    lines = [text.text for text in texts]
    checkpoint = request.open_checkpoint()
    encoded = encode_texts(checkpoint, lines, max_length=request.max_length)
    source = {
        "source": file.name if file else "headlab's prose",
        "sha256": hashlib.sha256("\n".join(lines).encode()).hexdigest(),
        "n_texts": len(lines),
        "max_length": request.max_length,
    }
    notes = {"texts_split": encoded.n_split, "chunks": encoded.n_chunks, "texts_too_short": encoded.n_too_short}
    signature = {"model": checkpoint.describe(), "texts": source}
    read = list(batches(encoded, checkpoint, batch_size=request.batch_size))
    return _Texts(checkpoint, read, signature, notes, lambda example: token_places(checkpoint, encoded, texts, example))


def _observe(request: DumpRequest, texts: _Texts, labels: list[Any], out: Path, stages: Stages) -> pd.DataFrame:
    """Observe and write everything; returns the head table."""
    from headlab.attention.heads import Heads
    from headlab.commands.plugins import facts_of_own
    from headlab.report.pictures import write_brief
    from headlab.runs.folder import open_run
    from headlab.runs.meta import read_meta, write_meta
    from headlab.runs.tables import load_table, save_table, table_path
    from headlab.runs.word_maps import word_maps

    stages.begin("probing and proving")
    heads = Heads(texts.checkpoint)
    maps = _maps(request, heads, texts, stages)  # first, so that a head that does not exist leaves no folder behind
    between_words = word_maps(maps) if request.per_word else None
    signature, command = request.signature(texts.signature), request.command or request.command_line(out)
    state = open_run(out, signature, request.overwrite, command=command)
    if state == "resume" and read_meta(out)["finished"] and table_path(out, "heads"):
        table = load_table(out, "heads")
        save_table(table, out, "heads", request.format)  # the same table, perhaps in another format now
        _write_maps(out, maps, between_words)  # the same maps, whatever became of their files
        return table
    stages.begin("observing")
    table = heads.observe(texts.batches, labels, request.statistics or None, seed=request.seed, progress=stages)
    save_table(table, out, "heads", request.format)
    stages.begin("drawing")
    _write_maps(out, maps, between_words)
    write_brief(out)
    notes = texts.notes | _lost(heads, labels) | {"proofs": [f"{p.name} ({p.detail})" for p in heads.proofs]}
    notes |= facts_of_own(table.columns)
    write_meta(out, signature, command=command, notes=notes)
    return table


def _maps(request: DumpRequest, heads: Heads, texts: _Texts, stages: Stages) -> list[AttentionMap]:
    if not request.maps:
        return []
    from headlab.attention.observe.maps import attention_maps
    from headlab.base.masks import parse_heads

    stages.begin("keeping maps")
    chosen = parse_heads(request.heads, heads) if request.heads else None
    return attention_maps(heads.subject, texts.batches, request.maps, request.layers or None, chosen, texts.places_of)


def _write_maps(out: Path, maps: list[AttentionMap], between_words: pd.DataFrame | None) -> None:
    if maps:
        from headlab.runs.maps import save_maps

        save_maps(out, maps)
    if between_words is not None:
        from headlab.runs.tables import save_table

        save_table(between_words, out, "maps_words", "csv")


def _lost(heads: Heads, labels: list[Any]) -> dict[str, Any]:
    """Words that labels between words have not seen, since they lie beyond the model's limit or have no piece."""
    from headlab.attention.observe.observation import input_context

    inputs: dict[str, Any] = {
        label.name.partition(":")[0]: label.input for label in labels if hasattr(label.input, "lost")
    }
    return (
        {"words_lost": {name: given.lost(input_context(heads.subject)) for name, given in inputs.items()}}
        if inputs
        else {}
    )


def _remarks(request: DumpRequest, checkpoint: Checkpoint) -> list[str]:
    """What the command did otherwise than somebody may think: the same text on both sides, labels that need a name."""
    found = []
    if checkpoint.is_encoder_decoder and request.task is None:
        found.append(
            "Note: encoder and decoder were shown the same text. For pairs of sentences add --task translation."
        )
    if request.labels is None:
        from headlab.labels import LABELS

        files_of = request.families()
        left_out = sorted(set(LABELS.names()) - set(request.label_names()))
        own = [name for name in left_out if name not in files_of]
        files = [f"{name} (--{files_of[name]})" for name in left_out if name in files_of]
        parts = [f"{', '.join(own)} (they bring their own input: name them with --labels)"] if own else []
        parts += [", ".join(files)] if files else []
        found += [f"Labels not computed: {'; '.join(parts)}."] if parts else []
    return found


def _sha256(paths: str | Path | Sequence[str | Path]) -> str:
    found = hashlib.sha256()
    for path in [paths] if isinstance(paths, str | Path) else paths:
        try:
            found.update(Path(path).read_bytes())
        except OSError as error:
            raise DataError(f"{path} cannot be read: {error.strerror}.", "Give the path of a file.") from error
    return found.hexdigest()
