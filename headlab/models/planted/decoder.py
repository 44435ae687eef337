"""A Llama with shared keys and values whose heads were set by hand: what each looks at is known exactly.

The residual stream holds the token as a one-hot code, slots for the token before, for what is predicted and for what
nobody reads, and a large constant, beside which nothing else moves the RMSNorm. Keys are the same in every head: a
constant in the pairs that RoPE turns, and a token in those that it turns too slowly to matter. Positions are known to
queries alone, as the angle by which theirs is turned before.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch

from headlab.models.planted.language import CLASSES, DETERMINERS, LENGTH, NOUNS, tokenizer, vocabulary

SHARP = 12.0  # nats between what a head looks at and all the rest
LAYERS = (
    ("previous-token", "self", "sink", "broad", "duplicate-token", "syntactic", "dead", "noise"),
    # Keys of this layer are the tokens before, which the layer below has written.
    ("induction", "induction", "previous-token", "self", "sink", "broad", "dead", "noise"),
)
N_HEADS, N_GROUPS, HEAD_WIDTH = 8, 2, 128
N_TOKENS = len(vocabulary("decoder"))
PAIRS = HEAD_WIDTH // 2
THETA = 1e16  # pair p turns by 10^(-p/4) per token: 1, .56, .32 ... and those from 32 on by nothing that counts
NEAR = range(6)  # pairs that tell a token from its neighbours
NEAR_NATS = 20.0  # in each of them
FAR = 8  # the pair of a sink: turned by a quarter, its score is a sin(.01 distance), most at the first token
SLOW = [*range(PAIRS // 2, PAIRS), *range(PAIRS + PAIRS // 2, 2 * PAIRS)]
WIDTH = 264
# The random head of each layer. It is to carry no label; 5 of 24 other draws met the few words of a relation or of a
# needle so often that they carried one.
DRAWN = (8, 9)
CONSTANT = 1000.0
TOKEN, BEFORE, PREDICTED, UNREAD = (slice(1 + k * N_TOKENS, 1 + (k + 1) * N_TOKENS) for k in range(4))
# Between the furthest key and the one after it there shall still be SHARP nats.
SLOPE = SHARP / (math.sin(0.01 * (LENGTH - 1)) - math.sin(0.01 * (LENGTH - 2)))
MATCH = SLOPE * math.sin(0.01 * (LENGTH - 1)) + 2 * SHARP  # a token that is wanted beats any distance
# A right prediction raises its logit by this: the best value where half of the predictions are wrong, as in texts of
# two copies, of which the first cannot be predicted.
RAISE = math.log(N_TOKENS - 1)


def order(seed: int) -> list[list[str]]:
    """The planted head at each place, by layer; heads stay in their layer but not in their group."""
    draw = np.random.default_rng([seed, 0])
    return [[layer[number] for number in draw.permutation(N_HEADS)] for layer in LAYERS]


def wanted(name: str) -> tuple[np.ndarray, np.ndarray]:
    """What a head wants, in nats: of distances, (HEAD_WIDTH,) in pairs of RoPE, and of tokens, (query, key)."""
    near, tokens = np.zeros(HEAD_WIDTH), np.zeros((N_TOKENS, N_TOKENS))
    if name in ("previous-token", "self"):
        for pair in NEAR:  # sum of cos(angle (distance - 1)), or without the 1
            angle = THETA ** (-pair / PAIRS) if name == "previous-token" else 0.0
            near[pair], near[pair + PAIRS] = NEAR_NATS * math.cos(angle), -NEAR_NATS * math.sin(angle)
    if name in ("sink", "duplicate-token", "syntactic", "induction"):
        near[FAR + PAIRS] = -SLOPE
    if name in ("duplicate-token", "induction"):  # the key is the token, or the one before it
        tokens += MATCH * np.eye(N_TOKENS)
    if name == "syntactic":  # a noun its determiner
        ids = vocabulary("decoder")
        for k in range(CLASSES):
            tokens[ids[NOUNS[k]], ids[DETERMINERS[k]]] = MATCH
    return near, tokens


def planted_decoder(*, seed: int = 0, noise: float = 0.0) -> tuple[Any, Any]:
    """A LlamaForCausalLM of 2 layers x 8 heads in 2 groups and its tokenizer; `seed` shuffles the heads of a layer and
    draws the noise.

    `noise` is added to the weights of the queries so that each attention logit, of a pair of a query's token and a
    key's (in layer 1, the token before the key), gets a Gaussian of that standard deviation, in nats. The head "noise"
    is nothing but a random form of tokens and distance, of 12 nats, drawn once for all seeds. Made for float32: half
    precision cannot tell its positions apart.
    """
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=N_TOKENS,
        hidden_size=WIDTH,
        num_hidden_layers=len(LAYERS),
        intermediate_size=8,
        num_attention_heads=N_HEADS,
        num_key_value_heads=N_GROUPS,
        head_dim=HEAD_WIDTH,
        max_position_embeddings=LENGTH,
        pad_token_id=0,
        bos_token_id=None,
        eos_token_id=2,
        rope_parameters={"rope_type": "default", "rope_theta": THETA},
        tie_word_embeddings=False,
    )
    with torch.random.fork_rng(devices=[]):
        model = LlamaForCausalLM(config).eval()
    draw = np.random.default_rng([seed, 1])
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.fill_(1.0 if "norm" in name else 0.0)
        model.model.embed_tokens.weight[:, 0] = CONSTANT
        model.model.embed_tokens.weight[:, TOKEN] = torch.eye(N_TOKENS)
        model.lm_head.weight[:, PREDICTED] = torch.eye(N_TOKENS) * _code
        for number, (layer, names) in enumerate(zip(model.model.layers, order(seed), strict=True)):
            _plant_keys(layer.self_attn, BEFORE if number else TOKEN)
            for head, name in enumerate(names):
                _plant(layer.self_attn, head, name, number, noise, draw)
    return model, tokenizer("decoder")


# The norm leaves sqrt(WIDTH) of the constant and sqrt(WIDTH) / CONSTANT of a code: what brings either back to 1.
_one, _code = 1 / math.sqrt(WIDTH), CONSTANT / math.sqrt(WIDTH)


def _plant_keys(attention: Any, content: slice) -> None:
    """Keys and values of both groups: a constant, the token in `content`, and as value the token itself."""
    for group in range(N_GROUPS):
        here = slice(group * HEAD_WIDTH, (group + 1) * HEAD_WIDTH)
        key, value = attention.k_proj.weight[here], attention.v_proj.weight[here]
        key[[*NEAR, FAR], 0] = _one
        key[SLOW, content] = torch.eye(N_TOKENS) * _code
        value[:N_TOKENS, TOKEN] = torch.eye(N_TOKENS) * _code


def _plant(attention: Any, head: int, name: str, layer: int, noise: float, draw: np.random.Generator) -> None:
    """Set one head's slices of the projections of queries and outputs."""
    near, tokens = wanted(name)
    tokens = tokens + noise * draw.standard_normal((N_TOKENS, N_TOKENS))
    own = np.random.default_rng(
        DRAWN[layer]
    )  # a noise head is the same one whatever the seed, which changes the order alone
    if name == "noise":
        tokens += SHARP / math.sqrt(2) * own.standard_normal((N_TOKENS, N_TOKENS))
        turned = [*NEAR, *(pair + PAIRS for pair in NEAR)]
        near[turned] = SHARP / math.sqrt(len(turned)) * own.standard_normal(len(turned))
    here = slice(head * HEAD_WIDTH, (head + 1) * HEAD_WIDTH)
    query, out = attention.q_proj.weight[here], attention.o_proj.weight[:, here]
    scale = math.sqrt(HEAD_WIDTH)  # attention divides by it
    query[:, 0] = torch.tensor(near * scale * _one, dtype=torch.float32)
    query[SLOW, TOKEN] = torch.tensor(tokens.T * scale * _code, dtype=torch.float32)
    writes = torch.eye(N_TOKENS)
    if name == "previous-token":
        out[UNREAD if layer else BEFORE, :N_TOKENS] = writes
    elif name == "induction":
        out[PREDICTED, :N_TOKENS] = writes * RAISE / 2  # there are two of them
    elif name == "broad":
        out[PREDICTED, :N_TOKENS] = writes * 0.1
    elif name == "noise":
        out[PREDICTED, :N_TOKENS] = 0.1 * torch.tensor(own.standard_normal((N_TOKENS, N_TOKENS)), dtype=torch.float32)
    elif name not in ("sink", "dead"):  # values are shared: these two are silenced where they would be written
        out[UNREAD, :N_TOKENS] = writes
