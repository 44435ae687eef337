"""Forward passes that begin at the edited layer: what comes before it is recorded once and not computed again.

Removing heads of one layer leaves everything before that layer as it was. A replay therefore hands out the recorded
outputs of the layers before, and of the edited layer's attention; there the recorded slices, edited, go through the
projection again. No layer is called by headlab itself: the model's own forward runs, with layers replaced by what
they returned. So nothing needs to be known about a model; where layers exchange more than their outputs (a shared
cache, say), the numbers differ, which is tried on every model before anything is replayed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from weakref import WeakKeyDictionary

import numpy as np
import torch
from torch import Tensor

from headlab.attention.change.ablations import masked
from headlab.attention.change.recording import (
    Recording,
    Unrepeatable,
    copies_of,
    find_layers,
    gap_of,
    one_pass_for_all,
    recorded,
)
from headlab.attention.reach.projections import per_head
from headlab.attention.reach.sites import Site, difference, output_tensor, run, tolerance
from headlab.attention.reach.state import replaced_forwards
from headlab.attention.subject import Subject
from headlab.base.masks import HeadId, HeadMask, LayerKey
from headlab.models.state import evaluating
from headlab.models.texts.batch import Batch, Loss

STACK_TOKENS = 256  # beyond, a pass with several masks costs as much as one pass for each
_AT_PROJECTION = ("zero", "mean")  # ablations that are one replacement of a head's slice, the same for all tokens
_known: WeakKeyDictionary[Subject, Replay] = WeakKeyDictionary()


def replay_of(subject: Subject) -> Replay:
    """The replay of a model, tried out when it is first asked for."""
    if subject not in _known:
        _known[subject] = Replay(subject)
    return _known[subject]


class Replay:
    """How far a model's passes can be taken up from the middle; `reason` says why not, and is empty where they can.

    Tried out on a short batch: each layer, run alone between recorded ones, must return its own record, and the first,
    middle and last layer under a mask must give the outputs of the whole masked pass, both to 1e-5 of the largest value
    (single precision). `stacks` tells whether several masks can share one pass.
    """

    def __init__(self, subject: Subject) -> None:
        self.subject = subject
        self.reason = self.note = ""
        self.stacks = self.skips_attention = True
        try:
            self.layers = find_layers(subject.module, subject.sites, subject.example)
            self._try_out()
        except Unrepeatable as reason:
            self.reason = str(reason)

    def record(self, batch: Batch, loss: Loss, ablation: str = "zero", means: dict | None = None) -> LeaveOut:
        """One pass over a batch with everything noted that its replays need; `loss` gives (examples,)."""
        return LeaveOut(self, batch.to(self.subject.device), loss, ablation, means)

    def _try_out(self) -> None:
        """Find the fastest way that gives the outputs of whole passes; raises Unrepeatable where none does."""
        subject, batch = self.subject, self.subject.example
        limit = tolerance(subject.module) / 10
        gap = self._guarded(self._gap_of_single_layers)
        if gap > limit:
            raise Unrepeatable(f"layers alone give other outputs ({gap:.1e}): they exchange more than these")
        chosen = [subject.sites[place] for place in sorted({0, len(subject.sites) // 2, len(subject.sites) - 1})]
        naive = {}
        for site in chosen:
            mask = _without(subject, site, _halves(site)[0])
            with masked(subject, mask), torch.no_grad(), evaluating(subject.module):
                naive[site.key] = output_tensor(run(subject.module, batch))
        for self.stacks, self.skips_attention in [(True, True), (False, True), (False, False)]:
            gap = self._guarded(lambda: self._gap_of_edited(naive))
            if gap <= limit:
                return
            self.note = f"masks share no pass: outputs would differ by {gap:.1e}"
        raise Unrepeatable(f"outputs of resumed passes differ by {gap:.1e}")

    def _guarded(self, gap: Callable[[], float]) -> float:
        try:
            return gap()
        except Exception:  # a model whose layers miss something may raise anything
            return float("inf")

    def _taken(self) -> LeaveOut:
        return LeaveOut(self, self.subject.example, lambda model, batch: output_tensor(run(model, batch)), "zero", None)

    def _gap_of_single_layers(self) -> float:
        """How far each layer, run alone between recorded ones, is from its own record."""
        recording = self._taken().recording
        assert recording is not None
        gaps = []
        for place in range(len(self.layers.modules)):
            others = {
                m: _returning(recording.outputs[i], 1, 0) for i, m in enumerate(self.layers.modules) if i != place
            }
            again = Recording(self.layers)
            model = self.subject.module
            with torch.no_grad(), evaluating(model), replaced_forwards(others), recorded(model, again):
                run(model, self.subject.example)
            gaps.append(gap_of(again.outputs[place], recording.outputs[place]))
        return max(gaps)

    def _gap_of_edited(self, naive: dict[LayerKey, Tensor]) -> float:
        """How far replays are from whole masked passes, every other head of a layer removed."""
        taken = self._taken()
        gaps = []
        for site in (site for site in self.subject.sites if site.key in naive):
            keep = _halves(site) if self.stacks and site.n_heads > 1 else _halves(site)[:1]
            gaps.append(difference(taken.under(site, keep)[0], naive[site.key], self.subject.example))
        return max(gaps)


class LeaveOut:
    """One batch of a task: its losses with all heads, and without some of them.

    `complete` is (examples,), float64. Where the model cannot be replayed, or an ablation is more than a replacement
    of slices, whole masked passes are run instead: the numbers are the same.
    """

    def __init__(self, replay: Replay, batch: Batch, loss: Loss, ablation: str, means: dict | None) -> None:
        self.replay, self.batch, self.loss = replay, batch, loss
        self.ablation, self.means = ablation, means
        self.subject = replay.subject
        self.recording: Recording | None = None
        with torch.no_grad(), evaluating(self.subject.module):
            if replay.reason:
                complete = loss(self.subject.module, batch)
            else:
                self.recording = Recording(replay.layers)
                with recorded(self.subject.module, self.recording):
                    complete = loss(self.subject.module, batch)
        self.complete = _numbers(complete)

    def without(self, removed: Sequence[HeadId | tuple[str, int, int]]) -> np.ndarray:
        """Losses with each of the heads removed alone, (removed, examples), float64."""
        rows = np.empty((len(removed), *self.complete.shape))
        places: dict[LayerKey, list[int]] = {}
        for place, (kind, layer, _) in enumerate(removed):
            places.setdefault((kind, layer), []).append(place)
        for site in self.subject.sites:
            mine = places.get(site.key, [])
            keep = torch.ones(len(mine), site.n_heads, dtype=torch.bool)
            keep[range(len(mine)), [removed[place][2] for place in mine]] = False
            rows[mine] = self.under_masks(site, keep)
        return rows

    def under_masks(self, site: Site, keep: Tensor) -> np.ndarray:
        """Losses under masks of one layer's heads, `keep` (masks, heads of the site): (masks, examples), float64.

        A loss that gives more than one number for an example gives them here, (masks, examples, numbers).
        """
        step = self._masks_in_a_pass(site)
        rows = np.empty((len(keep), *self.complete.shape))
        for start in range(0, len(keep), step):
            for place, losses in enumerate(self.under(site, keep[start : start + step]), start):
                rows[place] = _numbers(losses)
        return rows

    def under(self, site: Site, keep: Tensor) -> list[Tensor]:
        """What the loss gives under each row of `keep` (masks, heads of the site)."""
        model, recording = self.subject.module, self.recording
        with torch.no_grad(), evaluating(model):
            if recording is None or recording.passes != 1:  # a loss that runs the model twice mixes up the records
                return [self._whole(site, row, {}) for row in keep]
            early = recording.before(site)
            if not self._replaces_slices(site):
                return [self._whole(site, row, early) for row in keep]
            edit = self._edit(site, keep)
            if self.replay.skips_attention:
                early |= recording.attention(site, len(keep))
            stubs = {module: _returning(made, len(keep), len(self.batch)) for module, made in early.items()}
            with (
                self.subject.edited(edit),
                replaced_forwards(stubs),
                one_pass_for_all(model, len(keep), len(self.batch)),
            ):
                return [self.loss(model, self.batch) for _ in range(len(keep))]

    def _whole(self, site: Site, keep: Tensor, early: dict) -> Tensor:
        """One mask by the engine's own removal, with what lies before the layer taken from the record, if any."""
        stubs = {module: _returning(made, 1, len(self.batch)) for module, made in early.items()}
        mask = _without(self.subject, site, keep)
        with masked(self.subject, mask, self.ablation, self.means), replaced_forwards(stubs):
            return self.loss(self.subject.module, self.batch)

    def _masks_in_a_pass(self, site: Site) -> int:
        if not self.replay.stacks or self.recording is None or not self._replaces_slices(site):
            return 1
        tokens = max(side.ids.numel() for side in self.batch.sides)
        return max(1, min(STACK_TOKENS // tokens, site.n_heads))

    def _replaces_slices(self, site: Site) -> bool:
        return self.ablation in _AT_PROJECTION and site.projection is not None

    def _edit(self, site: Site, keep: Tensor) -> Callable[[Site, Tensor], Tensor | None]:
        """The edit that removes, in each copy of the batch, the heads that its row of `keep` leaves out."""
        means = None if self.ablation == "zero" or self.means is None else self.means[site.key]

        def edit(reached: Site, entering: Tensor) -> Tensor | None:
            if reached.key != site.key:
                return None
            slices = per_head(entering, reached)  # (copies * rows, ..., head, value_dim)
            slices = slices.reshape(len(keep), -1, *slices.shape[1:])
            kept = keep.to(entering.device).view(len(keep), *[1] * (slices.dim() - 3), -1, 1)
            fill = entering.new_zeros(()) if means is None else means.to(entering)
            return torch.where(kept, slices, fill).reshape(entering.shape)

        return edit


def _returning(made: object, masks: int, rows: int) -> Callable[..., object]:
    """A forward that computes nothing: it returns copies of what was recorded, or asks for it where it is a function.

    Copies, since a model may change in place what it is given.
    """

    def forward(*_: object, **__: object) -> object:
        return made() if callable(made) and not isinstance(made, Tensor) else copies_of(made, masks, rows)

    return forward


def _without(subject: Subject, site: Site, keep: Tensor) -> HeadMask:
    gone = [HeadId(*site.key, int(head)) for head in (~keep).nonzero().flatten()]
    return HeadMask.removing(gone, like=subject)


def _halves(site: Site) -> Tensor:
    """Two masks, (2, heads): without the even and without the odd heads."""
    odd = torch.arange(site.n_heads) % 2 == 1
    return torch.stack([odd, ~odd])


def _numbers(losses: Tensor) -> np.ndarray:
    return losses.detach().double().cpu().numpy()
