"""What a tiny model is shown where two short texts will not do: pictures, sounds, codes, keys of another model."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from headlab import Batch, Tokens

ROWS, LENGTH, TARGET = 2, 11, 7


def tiny_batch(model: nn.Module) -> Batch | None:
    """Inputs for a tiny model that does not read plain texts; None for one that does."""
    generator = torch.Generator().manual_seed(0)
    special = _BY_TYPE.get(getattr(model.config, "model_type", ""))
    if special is not None and "Image" not in type(model).__name__:
        return special(model, generator)
    name = getattr(model, "main_input_name", "input_ids")
    if name == "pixel_values":
        inputs = {name: _picture(model.config, generator)}
        return _batch(inputs, _tokens(_attended(model, inputs), generator))
    if name in ("input_features", "input_values"):
        return _sound(model, name, generator)
    return None


def _tokens(length: int, generator: torch.Generator, rows: int = ROWS) -> Tokens:
    ids = torch.randint(5, 30, (rows, length), generator=generator)
    none = torch.zeros_like(ids, dtype=torch.bool)
    return Tokens(ids, ~none, none, none)


def _batch(inputs: dict[str, Any], source: Tokens, target: Tokens | None = None) -> Batch:
    return Batch(inputs, source, target, examples=tuple(range(source.ids.shape[0])))


def _text(generator: torch.Generator, **more: Any) -> Batch:
    source = _tokens(LENGTH, generator)
    return _batch({"input_ids": source.ids, "attention_mask": source.valid.long(), **more}, source)


def _picture(config: Any, generator: torch.Generator) -> Tensor:
    config = getattr(config, "vision_config", config)
    size = getattr(config, "image_size", 224) or 224
    height, width = size if isinstance(size, list | tuple) else (size, size)
    return torch.randn(ROWS, getattr(config, "num_channels", 3) or 3, height, width, generator=generator)


def _sound(model: Any, name: str, generator: torch.Generator) -> Batch:
    """Frames of a spectrogram, or samples; the decoder's tokens are the target."""
    config = model.config
    target = _tokens(TARGET, generator)
    bins = next(
        (getattr(config, key) for key in ("num_mel_bins", "input_feat_per_channel") if hasattr(config, key)), 80
    )
    positions = getattr(config, "max_source_positions", 64)
    if name == "input_values":
        sound = torch.randn(ROWS, 4_000, generator=generator)
    elif getattr(config, "model_type", "") == "whisper":
        sound = torch.randn(ROWS, bins, 2 * positions, generator=generator)
    else:
        sound = torch.randn(ROWS, 64, bins, generator=generator)
    inputs = {name: sound, "decoder_input_ids": target.ids}
    return _batch(inputs, _tokens(_attended(model, inputs), generator), target)


def _attended(model: nn.Module, inputs: dict[str, Any]) -> int:
    """How many positions the first attention layer sees; LENGTH where that cannot be told."""
    lengths: list[int] = []

    def note(module: nn.Module, given: tuple, named: dict[str, Any]) -> None:
        entering = [value for value in (*given, *named.values()) if isinstance(value, Tensor) and value.dim() == 3]
        lengths.extend(value.shape[1] for value in entering[:1])

    layers = [module for module in model.modules() if "attention" in type(module).__name__.lower()]
    hooks = [layer.register_forward_pre_hook(note, with_kwargs=True) for layer in layers]
    try:
        with torch.no_grad():
            model(**inputs)
    except (TypeError, ValueError, RuntimeError):
        return LENGTH
    finally:
        for hook in hooks:
            hook.remove()
    return lengths[0] if lengths else LENGTH


def _bytes(model: Any, generator: torch.Generator) -> Batch:
    """For models that read whole arrays of bytes (Perceiver)."""
    source = _tokens(model.config.max_position_embeddings, generator)
    return _batch({"inputs": source.ids, "attention_mask": source.valid.long()}, source)


def _codebooks(model: Any, generator: torch.Generator) -> Batch:
    """One row per codebook and example; attention runs over examples (MusicGen)."""
    books = model.config.num_codebooks
    ids = torch.randint(5, 30, (ROWS * books, LENGTH), generator=generator)
    return _batch({"input_ids": ids}, _tokens(LENGTH, generator))


def _draft(model: Any, generator: torch.Generator) -> Batch:
    """Hidden states, keys and values that another model hands over (the assistants of Gemma 4)."""
    text = model.config.get_text_config()
    text.allow_global_per_layer_attribute_access = True
    states = {}
    for layer, kind in enumerate(text.layer_types):
        own = text.per_layer_config[layer] if text.is_heterogeneous else text
        shape = (ROWS, own.num_key_value_heads, LENGTH, own.head_dim)
        states[kind] = tuple(torch.randn(shape, generator=generator) for _ in range(2))
    width = 2 * model.config.backbone_hidden_size
    inputs = torch.randn(ROWS, LENGTH, width, generator=generator)
    source = _tokens(LENGTH, generator)
    positions = torch.arange(LENGTH).expand(ROWS, -1)
    return _batch(
        {
            "inputs_embeds": inputs,
            "shared_kv_states": states,
            "position_ids": positions,
            "logits_to_keep": torch.arange(LENGTH),
        },
        source,
    )


def _spoken(model: Any, generator: torch.Generator) -> Batch:
    """Text tokens with as many frames of sound (Voxtral Realtime)."""
    width = model.config.audio_config.hidden_size
    frames = torch.randn(ROWS, LENGTH * model.config.downsample_factor, width, generator=generator)
    text = _text(generator, encoder_inputs_embeds=frames)
    return _batch(dict(text.inputs), _tokens(frames.shape[1], generator), text.source)


def _without_cache(model: Any, generator: torch.Generator) -> Batch:
    return _text(generator, use_cache=False)


_BY_TYPE: dict[str, Callable[[Any, torch.Generator], Batch]] = {
    "blt": _without_cache,
    "gemma4_assistant": _draft,
    "gemma4_unified_assistant": _draft,
    "musicgen_decoder": _codebooks,
    "musicgen_melody_decoder": _codebooks,
    "perceiver": _bytes,
    "voxtral_realtime": _spoken,
}
