"""A BERT whose heads were set by hand: what each looks at is known exactly, whatever their order.

The residual stream holds token and position as one-hot codes less their mean, a slot for what heads write, and a large
constant (once +, once -), beside which nothing else moves the LayerNorm. Every head has the same keys, position and
token of the key, and its queries say how much of each it wants, in nats: see `form`.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch

from headlab.models.planted.language import CLASSES, DETERMINERS, LENGTH, NOUNS, PERIOD, tokenizer, vocabulary

SHARP = 12.0  # nats between what a head looks at and all the rest
IMPOSTOR = 0.45  # mass on the previous token, just below every threshold
HEADS = (
    "previous-token",
    "next-token",
    "self",
    "separator",
    "sink",
    "broad",
    "block",
    "duplicate-token",
    "syntactic",
    "impostor",
    "dead",
    "noise",
)
N_LAYERS, N_HEADS = 3, 4
N_TOKENS = len(vocabulary("encoder"))
KEYS = LENGTH + N_TOKENS  # what a key says: its position, then its token; the width of a head
WIDTH = N_HEADS * KEYS
CONSTANT = 300.0
TOKEN = slice(2, 2 + N_TOKENS)
POSITION = slice(TOKEN.stop, TOKEN.stop + LENGTH)
WRITTEN = slice(POSITION.stop, POSITION.stop + N_TOKENS)


def order(seed: int) -> list[list[str]]:
    """The planted head at each place, by layer."""
    places = np.random.default_rng([seed, 0]).permutation(len(HEADS)).reshape(N_LAYERS, N_HEADS)
    return [[HEADS[number] for number in layer] for layer in places]


def form(name: str) -> tuple[np.ndarray, np.ndarray]:
    """What a head wants, in nats: (1 + LENGTH + N_TOKENS queries, KEYS), row 0 for every query, and its output map.

    The output map is (token, written), what is written for a token that is looked at.
    """
    wants, writes = np.zeros((1 + KEYS, KEYS)), np.eye(N_TOKENS)
    always, position, token = wants[0], wants[1 : 1 + LENGTH, :LENGTH], wants[1 + LENGTH :, LENGTH:]
    if name in ("previous-token", "impostor"):
        # Of the other 63 keys each has e^0: the mass m takes ln(63 m / (1 - m)) nats.
        nats = SHARP if name != "impostor" else math.log((LENGTH - 1) * IMPOSTOR / (1 - IMPOSTOR))
        position += nats * np.eye(LENGTH, k=-1)
    elif name == "next-token":
        position += SHARP * np.eye(LENGTH, k=1)
    elif name == "self":
        position += SHARP * np.eye(LENGTH)
    elif name == "separator":
        always[LENGTH + vocabulary("encoder")["[SEP]"]] = SHARP
    elif name == "sink":
        always[0], writes = SHARP, np.zeros((N_TOKENS, N_TOKENS))
    elif name == "block":  # the segments of the stated texts: [CLS] 1..30 [SEP] 32..62 [SEP]
        position[:PERIOD, 1 : PERIOD - 1] = position[PERIOD:, PERIOD:-1] = SHARP
    elif name == "duplicate-token":  # its own token elsewhere; where there is none, the first token
        token += 2 * SHARP * np.eye(N_TOKENS)
        position -= 4 * SHARP * np.eye(LENGTH)
        always[0] = SHARP
    elif name == "syntactic":  # a determiner its noun; every other token the first one
        ids = vocabulary("encoder")
        for k in range(CLASSES):
            token[ids[DETERMINERS[k]], ids[NOUNS[k]]] = 2 * SHARP
        always[0] = SHARP
    elif name == "dead":
        writes = np.zeros((N_TOKENS, N_TOKENS))
    return wants, writes


def planted_encoder(*, seed: int = 0, noise: float = 0.0) -> tuple[Any, Any]:
    """A BertModel of 3 layers x 4 heads and its tokenizer; `seed` shuffles the heads over all layers, draws the noise.

    `noise` is added to the weights of the queries so that each attention logit, of a pair of query and key at their
    positions and with their tokens, gets a Gaussian of that standard deviation, in nats. The head "noise" is nothing
    but such a form of 12 nats, drawn once for all seeds.
    """
    from transformers import BertConfig, BertModel

    config = BertConfig(
        vocab_size=N_TOKENS,
        hidden_size=WIDTH,
        num_hidden_layers=N_LAYERS,
        pad_token_id=0,
        num_attention_heads=N_HEADS,
        intermediate_size=8,
        max_position_embeddings=LENGTH,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
    )
    with torch.random.fork_rng(devices=[]):
        model = BertModel(config).eval()
    draw = np.random.default_rng([seed, 1])
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.fill_(CONSTANT * math.sqrt(2 / WIDTH) if name.endswith("LayerNorm.weight") else 0.0)
        words, positions = model.embeddings.word_embeddings.weight, model.embeddings.position_embeddings.weight
        words[:, 0], words[:, 1] = CONSTANT, -CONSTANT
        words[:, TOKEN] = torch.eye(N_TOKENS) - 1 / N_TOKENS
        positions[:, POSITION] = torch.eye(LENGTH) - 1 / LENGTH
        for layer, names in zip(model.encoder.layer, order(seed), strict=True):
            for head, name in enumerate(names):
                _plant(layer.attention, head, name, noise, draw)
    return model, tokenizer("encoder")


def _plant(attention: Any, head: int, name: str, noise: float, draw: np.random.Generator) -> None:
    """Set one head's slices of the projections."""
    wants, writes = form(name)
    # A logit is the sum of four terms (position or token of the query, position or token of the key).
    wants[1:] += noise / 2 * draw.standard_normal((KEYS, KEYS))
    if name == "noise":  # the same one whatever the seed, which changes the order alone
        own = np.random.default_rng(0)
        wants[1:] += SHARP / 2 * own.standard_normal((KEYS, KEYS))
        mixed = own.standard_normal((N_TOKENS, N_TOKENS)) / math.sqrt(N_TOKENS)
        writes = mixed - mixed.mean(1, keepdims=True)  # what is written keeps a mean of 0
    here = slice(head * KEYS, (head + 1) * KEYS)
    scale = math.sqrt(KEYS)  # attention divides by it
    by_position, by_token = wants[1 : 1 + LENGTH], wants[1 + LENGTH :]
    query, key, value, out = attention.self.query, attention.self.key, attention.self.value, attention.output.dense
    query.weight[here, POSITION] = torch.tensor(by_position.T * scale, dtype=torch.float32)
    query.weight[here, TOKEN] = torch.tensor(by_token.T * scale, dtype=torch.float32)
    # Codes are less their mean: what an average query wants comes back as the bias.
    bias = wants[0] + by_position.mean(0) + by_token.mean(0)
    query.bias[here] = torch.tensor(bias * scale, dtype=torch.float32)
    key.weight[here, POSITION][:LENGTH] = torch.eye(LENGTH)
    key.weight[here, TOKEN][LENGTH:] = torch.eye(N_TOKENS)
    if writes.any():
        value.weight[here, TOKEN][:N_TOKENS] = torch.eye(N_TOKENS)
        out.weight[WRITTEN, here][:, :N_TOKENS] = torch.tensor(writes.T, dtype=torch.float32)
