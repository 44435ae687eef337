"""What a model type needs beyond the general rules to become tiny.

By model type, values for its configuration; a dictionary under a part's name holds values for that part. Three keys
are special: `from`, the arguments of the default configuration that sizes are taken from, where the plain default is
invalid; `parts`, the model types of the parts of a composed model that has no default; `stand_ins`, model types for
parts that need a package which may not be installed.
"""

from __future__ import annotations

from typing import Any

_HYBRID = ["linear_attention", "full_attention"]
_TWO_ROPES = {
    "full_attention": {"rope_type": "default", "rope_theta": 10_000.0},
    "sliding_attention": {"rope_type": "default", "rope_theta": 10_000.0},
}
_INDEXER = {
    "indexer_n_heads": 2,
    "indexer_kv_heads": 1,
    "indexer_head_dim": 16,
    "indexer_budget": 4,
    "indexer_compress_ratio": 1,
}
_WIDE_GLOBAL = {"global_head_dim": 32}  # Gemma 4: heads of global layers are wider
_LATENT_WINDOW = {  # Dots 3: sliding layers with latent attention of their own sizes
    "swa_num_attention_heads": 2,
    "swa_num_key_value_heads": 2,
    "swa_q_lora_rank": 24,
    "swa_kv_lora_rank": 16,
    "swa_head_dim": 24,
    "swa_qk_nope_head_dim": 16,
    "swa_v_head_dim": 16,
}
_NO_PER_LAYER_INPUT = {"text_config": {"hidden_size_per_layer_input": 0, "vocab_size_per_layer_input": 0}}

_TOWER = {"vocab_size": 128, "vocab_offset": 300, "rms_norm_eps": 1e-6}

RECIPES: dict[str, dict[str, Any]] = {
    # Layers whose kinds follow from a period instead of a list.
    "bamba": {"attn_layer_indices": [1]},
    "jamba": {"attn_layer_period": 2, "attn_layer_offset": 1},
    "granitemoehybrid": {"layer_types": _HYBRID},
    "lfm2_moe": {"layer_types": ["conv", "full_attention", "full_attention"], "num_hidden_layers": 3},
    "recurrent_gemma": {"block_types": ["recurrent", "attention"]},
    "gpt_neo": {"attention_types": [[["global", "local"], 1]]},
    "dory": {
        "num_hidden_layers": 3,
        "n_input_layers": 1,
        "n_recurrent_layers": 1,
        "n_output_layers": 1,
        "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
    },
    "hrm_text": {"num_hidden_layers": 1, "num_layers_per_stack": None},
    "neomme": {
        "layer_types": ["sliding_attention", "full_attention"],
        "per_layer_config": {1: {"sliding_window": None}},
    },
    "zamba": {"num_hidden_layers": 4, "layers_block_type": ["linear_attention", "hybrid"] * 2},
    # Values that have no default.
    "cohere_compass_text": {"layer_types": ["sliding_attention", "full_attention"], "rope_parameters": _TWO_ROPES},
    "dbrx": {"attn_config": {"rope_theta": 10_000.0, "clip_qkv": 8.0}},
    "deepseek_v2": {"num_experts_per_tok": 2},
    "dots1": {"n_routed_experts": 4, "num_experts_per_tok": 2, "n_shared_experts": 1},
    "esm": {"vocab_size": 33, "mask_token_id": 32, "pad_token_id": 1},
    "qwen4_exp_text": _INDEXER,
    "xmod": {"default_language": "en_XX"},
    # Sizes that must agree with each other.
    "dots3_note_text": _LATENT_WINDOW,
    "gemma4_text": _WIDE_GLOBAL,
    "gemma4_unified_text": _WIDE_GLOBAL,
    "gemma4_assistant": {"from": _NO_PER_LAYER_INPUT} | _NO_PER_LAYER_INPUT,
    "gemma4_unified_assistant": _NO_PER_LAYER_INPUT,
    "blt_global_transformer": {"hidden_size": 128},
    "mamba2": {"num_heads": 8, "head_dim": 16, "n_groups": 1},
    "reformer": {"axial_pos_embds_dim": (16, 48), "axial_pos_shape": (8, 16)},
    "vibevoice_acoustic_tokenizer": {"num_filters": 2, "depths": (1,) * 7},
    "vibevoice_acoustic_tokenizer_encoder": {"num_filters": 2, "depths": (1,) * 7},
    "vibevoice_acoustic_tokenizer_decoder": {"num_filters": 2, "depths": (1,) * 7},
    "vibevoice_asr": {"acoustic_tokenizer_chunk_size": 3_200},
    "xlstm": {"qk_dim_factor": 1.0, "num_blocks": 2},
    "falcon_h1": {"mamba_d_ssm": 128, "mamba_n_heads": 8, "mamba_d_head": 16},
    # A vision tower that needs timm; texts do not reach it.
    "gemma3n": {"stand_ins": {"vision_config": ("siglip_vision_model", _TOWER)}},
    # Models composed of two others.
    "encoder-decoder": {"parts": {"encoder": "bert", "decoder": "bert"}},
}
