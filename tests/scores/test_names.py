"""Names of scores with their variants: what is known before torch and a model are loaded."""

from __future__ import annotations

import inspect
import subprocess
import sys

import pytest

from headlab.cli.list_names import entries
from headlab.errors import UsageError
from headlab.scores import SCORES, require_score, variants

GOOD = ("gradient", "gradient:per-token", "gradient:per-token:layer-normalised", "fisher", "ablation:uniform",
        "label:induction", "label:syntactic:det:dependent-head")  # fmt: skip
BAD = {"gradiant": "gradient", "gradient:per-tokens": "per-token", "random:mean": "no variants", "label": "label:"}


@pytest.mark.parametrize("name", GOOD)
def test_names_that_score_takes_are_known_beforehand(name):
    require_score(name)


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
