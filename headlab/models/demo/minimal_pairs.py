"""Minimal pairs of English, made by rule: two sentences that differ in a word, of which only one is well formed."""

from __future__ import annotations

import random
from collections.abc import Callable

from headlab.base.errors import UsageError
from headlab.models.demo.lexicon import (
    EXPERIENCES,
    FEMALE,
    HABITS,
    IRREGULAR,
    MALE,
    MEN,
    NOUNS,
    OBJECTS,
    PEOPLE,
    PLACES,
    REFLEXIVE_DEEDS,
    RELATIONS,
    TIMES,
    TRANSITIVITY,
    VERBS,
    WOMEN,
)

Pair = tuple[str, str]  # well formed, ill formed
PER_PARADIGM = 45


def minimal_pairs(per_paradigm: int = PER_PARADIGM, seed: int = 0) -> list[dict[str, str]]:
    """Pairs in the manner of BLiMP (Warstadt et al. 2020): dicts of sentence_good, sentence_bad, paradigm.

    The same arguments give the same pairs in the same order; no pair occurs twice. Raises UsageError for more pairs
    than the words can make.
    """
    pairs = []
    for name, make in PARADIGMS.items():
        rng = random.Random(f"{name} {seed}")
        made: dict[Pair, None] = {}  # in order of making
        for _ in range(100 * per_paradigm):
            if len(made) == per_paradigm:
                break
            made[make(rng)] = None
        if len(made) < per_paradigm:
            raise UsageError(f"{name} has only about {len(made)} pairs, not {per_paradigm}.", "Ask for fewer pairs.")
        pairs += [{"sentence_good": good, "sentence_bad": bad, "paradigm": name} for good, bad in made]
    return pairs


def subject_verb_agreement(rng: random.Random) -> Pair:
    """The farmer sings / *sing in the garden."""
    subject = rng.choice(PEOPLE)
    forms = rng.choice(VERBS)
    start, end = f"The {{}} {{}} {rng.choice(PLACES)}", rng.choice(HABITS)
    number = rng.randrange(2)
    return _filled(f"{start} {end}.", subject[number], forms[number], forms[1 - number])


def agreement_past_attractor(rng: random.Random) -> Pair:
    """The key to the cabinets is / *are missing: a noun of the other number stands between subject and verb."""
    head, link, between = rng.choice(RELATIONS)
    number = rng.randrange(2)
    verbs = rng.choice((("is", "are"), ("was", "were"), ("has been", "have been")))
    state = rng.choice(("missing", "very old", "still there", "quite new", "known to everybody"))
    subject = f"{head[number]} {link} the {between[1 - number]}"
    return _filled(f"The {{}} {{}} {state}.", subject, verbs[number], verbs[1 - number])


def determiner_noun_agreement(rng: random.Random) -> Pair:
    """Anna bought these / *this baskets."""
    number = rng.randrange(2)
    determiners = rng.choice((("this", "these"), ("that", "those")))
    verb = rng.choice(("bought", "found", "cleaned", "sold", "painted", "liked"))
    end = f"{rng.choice(OBJECTS)[number]} {rng.choice(TIMES)}."
    start = f"{rng.choice(WOMEN + MEN)} {verb}"
    return f"{start} {determiners[number]} {end}", f"{start} {determiners[1 - number]} {end}"


def reflexive_gender(rng: random.Random) -> Pair:
    """The queen saw herself / *himself in the mirror."""
    is_male = rng.randrange(2)
    person, deed = rng.choice(MALE if is_male else FEMALE), rng.choice(REFLEXIVE_DEEDS)
    pronouns = ("herself", "himself")
    return _filled(f"The {{}} {deed}.", person, pronouns[is_male], pronouns[1 - is_male])


def reflexive_number(rng: random.Random) -> Pair:
    """The nurses blamed themselves / *herself for the accident."""
    people, deed = rng.choice(PEOPLE), rng.choice(REFLEXIVE_DEEDS).replace("was", "were")
    wrong = rng.choice(("herself", "himself"))
    return _filled(f"The {{}} {deed}.", people[1], "themselves", wrong)


def irregular_participle(rng: random.Random) -> Pair:
    """The letter was written / *wrote, and she wrote / *written it: past tense against participle."""
    past, participle, thing = rng.choice(IRREGULAR)
    person = rng.choice(PEOPLE)[rng.randrange(2)]
    time = rng.choice(TIMES)
    if rng.randrange(2):
        return _filled(f"The {{}} was {{}} by the {person}.", thing, participle, past)
    return _filled(f"The {{}} {{}} the {thing} {time}.", person, past, participle)


def negative_polarity(rng: random.Random) -> Pair:
    """No / *Every teacher has ever seen the sea: "ever" needs a negative before it."""
    deed = rng.choice(EXPERIENCES)
    if rng.randrange(3) == 0:
        place = rng.choice(NOUNS)
        return f"Nobody in the {place} has ever {deed}.", f"Somebody in the {place} has ever {deed}."
    person = rng.choice(PEOPLE)[0]
    return _filled(f"{{1}} {{0}} has ever {deed}.", person, "No", rng.choice(("Every", "This")))


def argument_structure(rng: random.Random) -> Pair:
    """The boy broke / *vanished the cup: a verb that takes no object is given one."""
    person = rng.choice(PEOPLE)[rng.randrange(2)]
    good, bad = rng.choice(TRANSITIVITY)
    return _filled(f"The {{}} {{}} the {rng.choice(OBJECTS)[0]} {rng.choice(TIMES)}.", person, good, bad)


def existential_quantifier(rng: random.Random) -> Pair:
    """There was a / *every cup in the garden."""
    number = rng.randrange(2)
    thing = rng.choice(OBJECTS)[number]
    good, bad = (("one", "every"), ("many", "all"))[number]
    return _filled(f"There {('was', 'were')[number]} {{1}} {{0}} {rng.choice(PLACES)}.", thing, good, bad)


def _filled(frame: str, first: str, right: str, wrong: str) -> Pair:
    return frame.format(first, right), frame.format(first, wrong)


PARADIGMS: dict[str, Callable[[random.Random], Pair]] = {
    make.__name__: make
    for make in (
        subject_verb_agreement,
        agreement_past_attractor,
        determiner_noun_agreement,
        reflexive_gender,
        reflexive_number,
        irregular_participle,
        negative_polarity,
        argument_structure,
        existential_quantifier,
    )
}
