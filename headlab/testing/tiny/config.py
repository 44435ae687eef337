"""A configuration like a given one with every size made small, such that sizes, layers and rotations fit together."""

from __future__ import annotations

import dataclasses
import re
from typing import Any

import transformers
from transformers import PreTrainedConfig

from headlab.base.errors import unknown_name
from headlab.testing.tiny.recipes import RECIPES
from headlab.testing.tiny.rules import HEAD_DIM, LAYERS, VOCABULARY, shrunken_size

_LAYER_COUNTS = ("num_hidden_layers", "n_layer", "n_layers", "num_layers", "encoder_layers", "decoder_layers")
_TOKEN_ID = re.compile(r".*(token_id|token_index|_token_ids)|(mask|unk|pad|bos|eos)_index|eod_id|lang_id")
_SPECIAL = ("from", "parts", "stand_ins")
_MROPE = ("mrope_section", "xdrope_section")


def tiny_config(model_type: str, **overrides: Any) -> PreTrainedConfig:
    """The type's default configuration with every size made small and each kind of layer kept; `overrides` win."""
    if model_type not in transformers.CONFIG_MAPPING:
        raise unknown_name("model type", model_type, transformers.CONFIG_MAPPING.keys())
    cls = transformers.CONFIG_MAPPING[model_type]
    recipe = dict(RECIPES.get(model_type, {}))
    parts = {name: tiny_config(part) for name, part in recipe.pop("parts", {}).items()}
    if parts:
        return cls(**(parts | recipe | overrides))
    stand_ins = recipe.pop("stand_ins", {})
    default = cls(**recipe.pop("from", {}))
    config = _rebuilt(default, TokenIds(), recipe | overrides)
    for name, (other, values) in stand_ins.items():
        vars(config)[name] = tiny_config(other, **values)  # of a class that the type's own check would refuse
    return config


def _rebuilt(default: PreTrainedConfig, tokens: TokenIds, more: dict[str, Any]) -> PreTrainedConfig:
    """A small configuration of the same class, with `more` on top; a value in it may name a part's own values."""
    small = shrunken(default, tokens)
    nested = {name for name, value in small.items() if isinstance(value, PreTrainedConfig)}
    for name in nested & set(more):
        if isinstance(more[name], dict):
            small[name] = _rebuilt(getattr(default, name), tokens, _recipe(getattr(default, name)) | more[name])
    return type(default)(**(small | {k: v for k, v in more.items() if k not in nested or not isinstance(v, dict)}))


def _recipe(config: PreTrainedConfig) -> dict[str, Any]:
    return {name: value for name, value in RECIPES.get(config.model_type, {}).items() if name not in _SPECIAL}


def shrunken(default: PreTrainedConfig, tokens: TokenIds) -> dict[str, Any]:
    """The arguments that make a tiny configuration like this one."""
    values = _values(default)
    layers = KeptLayers(values)
    small: dict[str, Any] = {}
    for name, value in values.items():
        if isinstance(value, PreTrainedConfig):
            small[name] = _rebuilt(value, tokens, _recipe(value))
        elif layers.knows(name):
            small[name] = layers.small(name, value)
        elif isinstance(value, int) and not isinstance(value, bool):
            known = _TOKEN_ID.fullmatch(name)
            small[name] = tokens.small(value) if known else shrunken_size(name, value, values)
        elif isinstance(value, list | tuple) and value and all(type(each) is int for each in value):
            if not _TOKEN_ID.fullmatch(name):
                small[name] = type(value)(shrunken_size(name, each, values) for each in value)
            else:
                small[name] = type(value)(tokens.small(each) for each in value)
    if isinstance(values.get("rope_parameters"), dict):
        fit_rotations(small, values)
    return _stated(default) | small


def _values(default: PreTrainedConfig) -> dict[str, Any]:
    """What can be set and is; head widths that are derived elsewhere are stated."""
    default.allow_global_per_layer_attribute_access = True  # sizes that single layers override
    names = sorted(field.name for field in dataclasses.fields(type(default)))
    values = {name: getattr(default, name, None) for name in names}
    for name in ("head_dim", "num_key_value_heads"):
        if name in values and values[name] is None and values.get("num_attention_heads"):
            values[name] = HEAD_DIM if name == "head_dim" else values["num_attention_heads"]
    return {name: value for name, value in values.items() if value is not None}


def _stated(default: PreTrainedConfig) -> dict[str, Any]:
    """Settings that are no sizes and differ from those of the class: a part may be made with settings of its own."""
    own = {field.name: field.default for field in dataclasses.fields(type(default))}
    plain = {name: value for name, value in own.items() if isinstance(value, bool | float | str)}
    return {name: value for name in plain if (value := getattr(default, name, None)) != plain[name]}


class TokenIds:
    """Token ids beyond the small vocabulary move to its end, the same one to the same place in every part."""

    def __init__(self) -> None:
        self.moved: dict[int, int] = {}

    def small(self, value: int) -> int:
        """An id below the size of the small vocabulary."""
        if value < VOCABULARY - 40:
            return value
        return self.moved.setdefault(value, VOCABULARY - 1 - len(self.moved))


class KeptLayers:
    """Which layers of the default configuration stay: the first of every kind, by all lists that describe layers."""

    def __init__(self, values: dict[str, Any]) -> None:
        self.count = next((name for name in _LAYER_COUNTS if isinstance(values.get(name), int)), "")
        self.total = total = values.get(self.count, 0)
        lists = {name: value for name, value in values.items() if isinstance(value, list | tuple)}
        self.numbers = {name for name, value in lists.items() if _numbers_layers(name, value, total)}
        self.per_layer = {name for name, value in lists.items() if len(value) == total > 3} - self.numbers
        shared = values.get("num_kv_shared_layers", 0)
        kinds: dict[tuple, int] = {}
        for layer in range(total):
            told = [repr(lists[name][layer]) for name in sorted(self.per_layer)]
            listed = [layer in lists[name] for name in sorted(self.numbers)]
            kinds.setdefault((layer >= total - shared, *told, *listed), layer)
        kept = set(kinds.values())
        kept |= set(list(set(range(total)) - kept)[: max(0, LAYERS - len(kept))])
        self.layers = sorted(kept)
        self.shared = sum(layer >= total - shared for layer in self.layers)

    def knows(self, name: str) -> bool:
        """Whether this value says something about single layers, or how many there are."""
        return name in (self.count, "num_kv_shared_layers") or name in self.per_layer | self.numbers

    def small(self, name: str, value: Any) -> Any:
        """The value for the layers that stay."""
        if name == self.count:
            return len(self.layers)
        if name == "num_kv_shared_layers":
            return self.shared
        if name in self.numbers:
            return type(value)(self.layers.index(layer) for layer in value if layer in self.layers)
        picked = [value[layer] for layer in self.layers]
        if all(type(each) is int and each > 1 for each in picked):
            picked = [shrunken_size(name, each, {}) for each in picked]
        return type(value)(picked)


def _numbers_layers(name: str, value: Any, total: int) -> bool:
    """Whether a list holds numbers of layers."""
    named = re.fullmatch(r".*(_ids|_idxs|_indices|_indexes|(moe|mlp_only|cross_attention)_layers|layers_indices)", name)
    return bool(named) and all(type(each) is int and 0 <= each < total for each in value)


def fit_rotations(small: dict[str, Any], values: dict[str, Any]) -> None:
    """Make the sections and factors of rotary position embeddings fit the small head."""
    rope = values["rope_parameters"]
    sets = [rope] if "rope_type" in rope else [each for each in rope.values() if isinstance(each, dict)]
    if any(name in each for each in sets for name in _MROPE):
        part = min(each.get("partial_rotary_factor", 1.0) for each in sets)
        small["head_dim"] = max(small.get("head_dim", HEAD_DIM), 2 * round(4 / part))
    head_dim = small.get("qk_rope_head_dim", small.get("head_dim", HEAD_DIM))
    fitted = [_fitted(each, int(head_dim * each.get("partial_rotary_factor", 1.0)) // 2) for each in sets]
    if "rope_type" in rope:
        small["rope_parameters"] = fitted[0]
    else:
        new = iter(fitted)
        small["rope_parameters"] = {k: next(new) if isinstance(v, dict) else v for k, v in rope.items()}


def _fitted(rope: dict[str, Any], half: int) -> dict[str, Any]:
    new = dict(rope)
    for name in _MROPE:
        if name in rope:
            sections = len(rope[name])
            new[name] = [half - (half // sections) * (sections - 1), *[half // sections] * (sections - 1)]
    for name in ("short_factor", "long_factor"):
        if name in rope:
            new[name] = list(rope[name])[:half]
    return new
