"""Names of heads and masks over heads: what is read, what is written, what is refused."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headlab.base.errors import UsageError
from headlab.base.masks import HeadId, HeadMask, head_name, parse_heads


class Shape:
    """Stands in for a model: only its heads are known."""

    def __init__(self, sizes: dict[tuple[str, int], int]) -> None:
        self.heads_per_layer = sizes


ENCODER = Shape({("encoder", layer): 12 for layer in range(6)})
UNEVEN = Shape({("decoder", 0): 4, ("decoder", 3): 2})  # layers 1 and 2 have no attention
TRANSLATOR = Shape({(kind, layer): 8 for kind in ("encoder", "decoder", "cross") for layer in range(3)})
SHAPES = st.dictionaries(
    st.tuples(st.sampled_from(["encoder", "decoder", "cross"]), st.integers(0, 40)), st.integers(1, 70), min_size=1
).map(Shape)


@st.composite
def shape_and_heads(draw):
    shape = draw(SHAPES)
    every = [HeadId(*key, head) for key, size in shape.heads_per_layer.items() for head in range(size)]
    return shape, draw(st.lists(st.sampled_from(every), unique=True, max_size=15))


@given(shape_and_heads(), st.sampled_from([",", ", ", " ", "\n", " ; "]))
def test_names_read_back_as_the_same_heads(case, between: str) -> None:
    shape, heads = case
    single = len({kind for kind, _ in shape.heads_per_layer}) == 1
    text = between.join(head_name(head, single_stack=single) for head in heads)
    assert parse_heads(text, shape) == heads
    assert parse_heads(text.lower(), shape) == heads


@given(shape_and_heads())
def test_masks_read_back_as_the_same_mask(case) -> None:
    shape, heads = case
    mask = HeadMask.removing(heads, like=shape)
    assert set(mask.removed) == set(heads)
    assert len(mask.removed) + len(mask.kept) == len(mask) == sum(shape.heads_per_layer.values())
    again = HeadMask.removing(mask.to_text(), like=shape)
    assert again == mask and hash(again) == hash(mask)
    assert (mask == HeadMask.full(shape)) == (not heads)
    for kind, layer, head in heads:
        assert not mask[kind, layer][head]


@given(shape_and_heads(), st.integers(0, 15))
def test_and_removes_what_either_removes(case, cut: int) -> None:
    shape, heads = case
    first, second = (HeadMask.removing(part, like=shape) for part in (heads[:cut], heads[cut:]))
    assert first & second == second & first == HeadMask.removing(heads, like=shape)
    assert first & HeadMask.full(shape) == first


@given(shape_and_heads())
def test_michels_notation_counts_from_1(case) -> None:
    """Michel et al. 2019, code: `E:4:6` is layer 4, head 6 of the encoder, both from 1; A is decoder to encoder."""
    shape, heads = case
    letters = {"encoder": "E", "decoder": "D", "cross": "A"}
    text = " ".join(f"{letters[kind]}:{layer + 1}:{head + 1}" for kind, layer, head in heads)
    assert parse_heads(text, shape) == heads


def test_michels_lists() -> None:
    assert parse_heads("E:1:2,3 A:3:8", TRANSLATOR) == [
        HeadId("encoder", 0, 1),
        HeadId("encoder", 0, 2),
        HeadId("cross", 2, 7),
    ]
    assert parse_heads("E:1:2,3,D:2:1", TRANSLATOR)[-1] == HeadId("decoder", 1, 0)
    for text in ("E:0:1", "E:1:0", "A:1:1,0"):
        with pytest.raises(UsageError, match="from 1"):
            parse_heads(text, TRANSLATOR)


def test_a_single_stack_answers_to_both_letters() -> None:
    assert parse_heads("E3H5,L3H5", ENCODER) == [HeadId("encoder", 3, 5)] * 2
    assert head_name(("encoder", 3, 5), single_stack=True) == "L3H5"
    assert [head_name((kind, 3, 5), single_stack=False) for kind in ("encoder", "decoder", "cross")] == [
        "E3H5",
        "D3H5",
        "X3H5",
    ]


def test_dicts() -> None:
    assert parse_heads({3: [5, 6], 0: [1]}, ENCODER) == [
        HeadId("encoder", 3, 5),
        HeadId("encoder", 3, 6),
        HeadId("encoder", 0, 1),
    ]
    assert parse_heads({3: range(2)}, UNEVEN) == [HeadId("decoder", 3, 0), HeadId("decoder", 3, 1)]
    with pytest.raises(UsageError, match="ambiguous"):
        parse_heads({0: [1]}, TRANSLATOR)


def test_nothing_is_no_head() -> None:
    assert parse_heads("", ENCODER) == parse_heads({}, ENCODER) == []
    assert HeadMask.removing([], like=ENCODER) == HeadMask.full(ENCODER)
    assert HeadMask.full(ENCODER).to_text() == ""


@pytest.mark.parametrize("text", ["L6H0", "L0H12", "D0H0", "X0H0", "L3H5,L99H0", "E:7:1", "E:1:13"])
def test_heads_that_do_not_exist_are_refused_with_what_there_is(text: str) -> None:
    with pytest.raises(UsageError, match="no head") as refusal:
        parse_heads(text, ENCODER)
    assert "layers 0 to 5" in refusal.value.remedy and "heads 0 to 11" in refusal.value.remedy


@pytest.mark.parametrize("text", ["3H5", "L3", "H5", "L-1H2", "L3H5x", "head 3", "L3.H5", "E:1", "F:1:1", "L３H５x"])
def test_text_that_names_no_head_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="does not name a head"):
        parse_heads(text, ENCODER)


def test_l_is_ambiguous_with_several_stacks() -> None:
    with pytest.raises(UsageError, match="which stack") as refusal:
        parse_heads("L0H1", TRANSLATOR)
    assert "X3H5" in refusal.value.remedy


def test_layers_without_attention_have_no_heads() -> None:
    with pytest.raises(UsageError, match="no head L1H0"):
        parse_heads("L1H0", UNEVEN)
    with pytest.raises(UsageError, match="no head L3H2"):
        HeadMask.removing([("decoder", 3, 2)], like=UNEVEN)


@pytest.mark.parametrize("heads", [{0: [-1]}, {-1: [0]}])
def test_negative_numbers_in_a_dict_are_refused(heads: dict) -> None:
    with pytest.raises(UsageError, match="no head"):
        parse_heads(heads, ENCODER)
    with pytest.raises(UsageError, match="no head"):
        HeadMask.removing([("encoder", layer, head) for layer, row in heads.items() for head in row], like=ENCODER)


@pytest.mark.parametrize("heads", [{"three": [1]}, {0: ["x"]}, {0: 5}])
def test_dicts_of_other_things_are_refused(heads: dict) -> None:
    with pytest.raises(UsageError):
        parse_heads(heads, ENCODER)


def test_a_mask_cannot_be_changed() -> None:
    keep = {("encoder", 0): np.array([True, False])}
    mask = HeadMask(keep)
    keep["encoder", 0][0] = False
    assert mask.kept == [HeadId("encoder", 0, 0)]
    with pytest.raises(ValueError, match="read-only"):
        mask["encoder", 0][0] = False


def test_masks_of_different_models_do_not_combine() -> None:
    with pytest.raises(UsageError, match="different models"):
        HeadMask.full(ENCODER) & HeadMask.full(UNEVEN)
    assert HeadMask.full(ENCODER) != HeadMask.full(UNEVEN)
    assert HeadMask.full(ENCODER) != "full"


def test_a_list_of_names_is_as_good_as_text() -> None:
    first, second = HeadMask.removing(["L0H1", "L1H0"], like=ENCODER), HeadMask.removing("L0H1,L1H0", like=ENCODER)
    assert first == second and len(first.removed) == 2
    with pytest.raises(UsageError, match="does not name a head"):
        HeadMask.removing([3], like=ENCODER)


def test_a_head_of_a_stack_that_is_not_there_keeps_its_letter() -> None:
    decoder = Shape({("decoder", 0): 2})
    with pytest.raises(UsageError, match="no head E0H1"):
        HeadMask.removing("E0H1", like=decoder)
    with pytest.raises(UsageError, match="no head X0H1"):
        parse_heads("X0H1", decoder)
