"""Small tables of the command line, recorded once and compared ever after: `python tests/golden/record.py [NAME ..]`.

It goes through the command line alone, so that it also records what an older headlab says: put that one first on
PYTHONPATH. Numbers are kept with nine digits. Left out are the durations, and of the tables of heads of sweeps all
columns but the scores, since the tables of the dumps hold the rest.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import pandas as pd

FOLDER = Path(__file__).parent
LABELS = (
    "block,broad,cls,copying,duplicate_token,induction,local,mixed,next_token,positional,positional_argmax,"
    "previous_token,punctuation,rare_token,retrieval,self,separator,sink,vertical"
)
COMMANDS = {
    "labels-of-minilm": "dump demo:minilm --limit 8",
    "labels-of-planted-decoder": f"dump demo:planted-decoder --limit 8 --labels {LABELS}",
    "labels-of-planted-encoder": f"dump demo:planted-encoder --conllu {FOLDER}/treebank.conllu --labels syntactic",
    "labels-of-translator": "dump demo:firefox-en-pt --task translation --limit 4",
    "probe": "sweep demo:minilm --task probe --limit 40 --budgets 0,30%,60% --seeds 1 "
    "--scores gradient,ablation,magnitude,confidence,output_norm,fisher",
    "language-model": "sweep demo:planted-decoder --task lm --limit 4 --budgets 0,25%,50% --seeds 1 "
    "--scores ablation,shapley,greedy_ablation,hard_concrete,exact_k",
    "minimal-pairs": "sweep demo:smollm2 --task minimal-pairs --limit 4 --budgets 0,50% --seeds 1 --scores gradient",
}
HEAD = ["kind", "layer", "head"]


def tables(name: str, folder: Path) -> dict[str, pd.DataFrame]:
    """Run a command into `folder`; its tables by the name of the file that keeps them."""
    from headlab.cli import run

    code = run([*COMMANDS[name].split(), "--format", "csv", "--quiet", "--out", str(folder)])
    if code != 0:
        raise SystemExit(f"headlab {COMMANDS[name]} ended with {code}")
    heads = pd.read_csv(folder / "heads.csv")
    if not (folder / "sweep.csv").is_file():
        return {name: heads}
    scores = [column for column in heads if column.startswith("score_")]
    sweep = pd.read_csv(folder / "sweep.csv").drop(columns="seconds")
    return {f"{name}-scores": heads[HEAD + scores], f"{name}-sweep": sweep}


if __name__ == "__main__":
    for name in sys.argv[1:] or COMMANDS:
        with tempfile.TemporaryDirectory() as folder:
            for file, table in tables(name, Path(folder)).items():
                table.to_csv(FOLDER / f"{file}.csv", index=False, float_format="%.9g")
