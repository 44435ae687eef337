"""Translations under one mask in a file of their own, a JSON object a line, so that nothing is decoded twice."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass, fields
from pathlib import Path

from headlab.base.errors import UsageError
from headlab.runs.files import write_atomically


@dataclass(frozen=True)
class Translated:
    """One example's translation on one line, its number of tokens, and whether it ended within the limit."""

    example: int
    source: str
    reference: str
    translation: str
    n_tokens: int
    finished: bool

    @property
    def is_sound(self) -> bool:
        """Whether every value is of its type, which a file that was edited by hand does not promise."""
        return all(type(getattr(self, field.name)).__name__ == field.type for field in fields(self))


class Translations:
    """Translations by example; with a file, those that it holds are there, and new ones are added to it at once.

    A line that a killed run left unfinished is not read, and its example is translated again.
    """

    def __init__(self, path: Path | None = None) -> None:
        self.path = path
        self._by_example: dict[int, Translated] = {}
        if path is not None and path.is_file():
            for line in path.read_text(encoding="utf-8", errors="replace").split("\n"):
                try:
                    each = Translated(**json.loads(line))
                except (ValueError, TypeError):
                    continue
                if each.is_sound:
                    self._by_example[each.example] = each

    def __getitem__(self, example: int) -> Translated:
        return self._by_example[example]

    def __contains__(self, example: int) -> bool:
        return example in self._by_example

    def __len__(self) -> int:
        return len(self._by_example)

    def add(self, translations: Iterable[Translated]) -> None:
        """Keep translations; raises UsageError where the file cannot be written."""
        new = list(translations)
        self._by_example |= {each.example: each for each in new}
        if self.path is None or not new:
            return
        text = "".join(json.dumps(asdict(each), ensure_ascii=False) + "\n" for each in new)
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with self.path.open("a", encoding="utf-8") as file:
                file.write(("\n" if self.path.stat().st_size else "") + text)  # the last line may have been cut off
        except OSError as error:
            raise UsageError(f"{self.path} cannot be written: {error.strerror}.", "Choose another folder.") from error

    def sort(self) -> None:
        """Write the file again with each example once, in their order."""
        if self.path is not None and self._by_example:
            rows = [asdict(self._by_example[example]) for example in sorted(self._by_example)]
            write_atomically(self.path, "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows))
