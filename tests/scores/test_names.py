"""Names of scores with their variants, and what is known of scores before torch and a model are loaded."""

from __future__ import annotations

import dataclasses
import subprocess
import sys

import pytest

from headlab.base.errors import UsageError
from headlab.commands.list import entries
from headlab.scores import SCORES, make_score

GOOD = {
    "gradient": {},
    "gradient:per-token": {"per_token": True},
    "gradient:per-token:layer-normalised": {"per_token": True, "layer_normalised": True},
    "fisher": {},
    "ablation:uniform": {"ablation": "uniform"},
    "label:induction": {"label": "induction"},
    "label:syntactic:det:dependent-head": {"label": "syntactic:det:dependent-head"},
}
BAD = {"gradiant": "gradient", "gradient:per-tokens": "per-token", "random:mean": "no variants", "label": "label:"}


@pytest.mark.parametrize(("name", "settings"), GOOD.items())
def test_names_that_score_takes_are_known_beforehand(name, settings):
    made = make_score(name)
    assert made == SCORES.load(name.partition(":")[0])(**settings)


@pytest.mark.parametrize(("name", "said"), BAD.items())
def test_other_names_answer_with_what_there_is(name, said):
    with pytest.raises(UsageError) as caught:
        make_score(name)
    assert said in str(caught.value)


@pytest.mark.parametrize("name", SCORES.names())
def test_every_score_says_what_it_is(name):
    kind = SCORES.load(name)
    assert kind.name == name and kind.title and kind.text.endswith(".") and kind.definition
    assert dataclasses.is_dataclass(kind) and kind.__dataclass_params__.frozen
    for settings in kind.variants.values():
        assert settings and set(settings) <= set(kind.settings())


def test_scores_are_read_without_torch():
    code = (
        "import sys; from headlab.scores import SCORES, make_score; make_score('ablation:mean'); "
        "[SCORES.load(name) for name in SCORES.names()]; "
        "print([name for name in ('torch', 'transformers', 'matplotlib', 'scipy', 'pandas') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout.strip() == "[]", done.stdout + done.stderr


def test_the_list_names_the_variants_and_the_file():
    found = entries("scores")
    assert "gradient:per-token" in found["gradient"]["variants"]
    assert "label:LABEL" in found["label"]["variants"]
    assert found["shapley"]["file"] == "headlab/scores/shapley.py"
    assert found["random"]["variants"] is None
