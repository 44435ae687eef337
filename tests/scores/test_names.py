"""Names of scores with their variants: what is known before torch and a model are loaded."""

from __future__ import annotations

import inspect
import subprocess
import sys

import pytest

from headlab.base.errors import UsageError
from headlab.cli.list_names import entries
from headlab.scores import SCORES, require_score, variants
from headlab.scores._names import settings_of

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
    require_score(name)
    assert settings_of(*name.partition(":")[::2]) == settings


@pytest.mark.parametrize(("name", "said"), BAD.items())
def test_other_names_answer_with_what_there_is(name, said):
    with pytest.raises(UsageError) as caught:
        require_score(name)
    assert said in str(caught.value)


@pytest.mark.parametrize("name", [name for name in SCORES.names() if variants(name)])
def test_what_a_variant_sets_is_a_setting_of_the_score(name):
    taken = inspect.signature(SCORES.load(name).score).parameters
    for settings in variants(name).values():
        assert settings and set(settings) <= set(taken)


def test_names_are_read_without_torch():
    code = ("import sys; from headlab.scores import require_score, variants; require_score('ablation:mean'); "
            "print('torch' in sys.modules)")  # fmt: skip
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout.strip() == "False", done.stderr


def test_the_list_names_the_variants_and_the_file():
    found = entries("scores")
    assert "gradient:per-token" in found["gradient"]["variants"]
    assert "label:LABEL" in found["label"]["variants"]
    assert found["shapley"]["file"] == "headlab/scores/shapley.py"
    assert found["random"]["variants"] is None
