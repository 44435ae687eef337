"""Looks at the first token whatever the query: an attention sink."""

from headlab.labels.label import Label
from headlab.labels.scene import KeyClass, Scene

LABEL = Label(
    name="sink",
    title="sink",
    text="Parks its attention on the first token.",
    letter="K",
    colour="#E69F00",
    statistic="first_mass",
    threshold=0.3,
    published_chance=sum(1 / t for t in range(1, 65)) / 64,  # causal texts of 64 tokens: .074
    definition="mean attention to the first token above .3 at 64 tokens of causal attention",
    source="Gu et al. 2024 (2410.10781): alpha_1 with epsilon .3 at T = 64; sink_share decides for each "
    "text alone, as their code does",
    by_text=True,
    keys=KeyClass(Scene.first),
)
