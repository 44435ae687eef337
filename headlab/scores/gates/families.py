"""The families of gates that there are, by name."""

from __future__ import annotations

from headlab.base.errors import unknown_name
from headlab.scores.gates.exact_k import ExactKGates
from headlab.scores.gates.gates import Gates
from headlab.scores.gates.hard_concrete import HardConcreteGates

FAMILIES: dict[str, type[Gates]] = {family.name: family for family in (HardConcreteGates, ExactKGates)}


def gate_family(name: str) -> type[Gates]:
    """The family of that name; UsageError where there is none."""
    if name not in FAMILIES:
        raise unknown_name("method of learning gates", name, FAMILIES)
    return FAMILIES[name]
