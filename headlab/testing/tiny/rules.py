"""How each size in a configuration shrinks, by the name under which configurations of transformers keep it."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

HIDDEN, HEADS, HEAD_DIM, VOCABULARY, LAYERS = 64, 4, 16, 160, 2
ROPE_DIM, MLP, EXPERT_MLP = 8, 96, 32

Sizes = Mapping[str, object]  # a configuration's own values by name
Rule = Callable[[int, Sizes], int]


def _at_most(limit: int) -> Rule:
    return lambda value, sizes: min(value, limit)


def _kept(value: int, sizes: Sizes) -> int:
    return value


def _kv_heads(prefix: str) -> Rule:
    """As many as query heads where it was so, one where it was one, else half."""

    def shrink(value: int, sizes: Sizes) -> int:
        names = (f"{prefix}num_attention_heads", f"{prefix}attention_heads", "num_attention_heads", "n_heads", "n_head")
        heads = next((sizes[name] for name in names if name in sizes), value)
        return min(value, HEADS) if value in (1, heads) else HEADS // 2

    return shrink


def _head_dim(value: int, sizes: Sizes) -> int:
    return min(value, ROPE_DIM if value == sizes.get("qk_rope_head_dim") else HEAD_DIM)


def _even_window(value: int, sizes: Sizes) -> int:
    return min(value, 4)


# The first pattern that matches the whole name decides. Sizes that no pattern names keep their ratio to the hidden
# size, see `shrunken_size`.
RULES: tuple[tuple[str, Rule], ...] = (
    (r"type_vocab_size|.*_type_vocab_size", _kept),
    (r".*vocab_size.*|.*hash_byte_group_vocab|num_centroids", _at_most(VOCABULARY)),
    (r"first_k_dense_replace|num_dense_layers|n_shared_experts|num_shared_experts|moe_num_shared_experts", _at_most(1)),
    (r"(.*_)?num_kv_shared_layers|max_window_layers|moe_layer_(start|end)_index", _kept),
    (r"num_hidden_groups|inner_group_num|num_nextn_predict_layers|.*_norm_layers", _kept),
    (r"(.*_)?(n|num)_(.*_)?layers?|(.*_)?(encoder|decoder)_layers|.*_layers_per_.*", _at_most(LAYERS)),
    (r"(.*_)?num_key_value_heads|kv_n_heads|num_kv_heads|num_query_groups", _kv_heads("")),
    (r"linear_num_key_heads", _at_most(2)),
    (r".*index_n_heads|head_ratio|.*heads_per_ngram", _at_most(2)),
    (r"mamba_n_heads|mamba_num_heads", _at_most(8)),
    (r"n_mamba_heads", _kept),
    (r"(.*_)?(n|num)_(.*_)?heads?|(.*_)?(attention|encoder|decoder)_heads", _at_most(HEADS)),
    (r"qk_rope_head_dim|rotary_dim", _at_most(ROPE_DIM)),
    (r"qk_head_dim", _at_most(HEAD_DIM + ROPE_DIM)),
    (r"linear_.*head_dim|linear_head_dim", _at_most(8)),
    (r"head_dim|kv_channels|d_kv|d_head|dim_head", _head_dim),
    (r".*head_dim|mamba_d_head|mamba_headdim|attention_head_size", _at_most(HEAD_DIM)),
    (r"(.*_)?(top_?k|k|topk)|.*experts_per_tok(en)?|.*topk_blocks|.*index_topk|num_selected_.*", _at_most(2)),
    (r"adapter_out_dim|audio_hidden_size", _at_most(HIDDEN)),
    (r"n_group|num_expert_group|n_groups", _at_most(2)),
    (r"topk_group", _at_most(1)),
    (r"(.*_)?(num|n)_(.*_)?experts(_.*)?|zero_expert_num", _at_most(4)),
    (r"(moe|expert|shared)_.*(intermediate|ffn|hidden).*|.*expert.*intermediate_size", _at_most(EXPERT_MLP)),
    (r".*intermediate_size.*|.*ffn_dim|d_ff|dff|dim_ff|ffn_hidden_size|n_inner|d_inner|mlp_dim", _at_most(MLP)),
    (r"q_lora_rank|o_lora_rank", _at_most(24)),
    (r"kv_lora_rank", _at_most(16)),
    (r".*_rank|.*_lowrank", _at_most(8)),
    (r".*sliding_window|.*window_size|attention_window|local_attention|.*window_len|.*chunk_size", _even_window),
    (r"(max_)?.*position_embeddings|.*max_.*positions|n_positions|n_ctx|max_seq_len|model_max_length", _at_most(128)),
    (r"block_size|.*block_size|context_length", _at_most(4)),
    (r"state_size|.*d_state|ssm_state_size", _at_most(8)),
)
_COMPILED = tuple((re.compile(pattern), rule) for pattern, rule in RULES)
_WIDTH = re.compile(r".*(dim|dims|size|width|units|channels|features|d_model|n_embd|embed|d_ssm).*")
_NO_WIDTH = re.compile(r".*(patch|image|kernel|frame|stride|pool|group_size|crop|batch|beam|ngram|tile|merge).*")
HIDDEN_NAMES = ("hidden_size", "d_model", "n_embd", "emb_dim", "dim", "embed_dim", "d_latents")


def shrunken_size(name: str, value: int, sizes: Sizes) -> int:
    """What a whole number in a configuration becomes in a tiny one; widths keep their ratio to the hidden size."""
    for pattern, rule in _COMPILED:
        if pattern.fullmatch(name):
            return rule(value, sizes)
    if name in HIDDEN_NAMES:
        return min(value, HIDDEN)
    if _WIDTH.fullmatch(name) and not _NO_WIDTH.fullmatch(name) and value > HIDDEN:
        hidden = next((size for key in HIDDEN_NAMES if isinstance(size := sizes.get(key), int)), 0)
        ratio = value / hidden if hidden > HIDDEN else 1.0
        return max(8, round(HIDDEN * ratio / 8) * 8) if ratio <= 8 else HIDDEN
    return value
