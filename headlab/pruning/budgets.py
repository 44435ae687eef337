"""How many heads may go: a budget is a number of heads or a share of them."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from decimal import ROUND_HALF_UP, Decimal
from numbers import Integral, Real

from headlab.base.errors import UsageError

Budget = int | float | str
_TEXT = re.compile(r"^(-?\d+(?:\.\d+)?)\s*(%?)$")
_ALLOWED = "Write a number of heads (12), a per cent (10%) or a share (0.1)."


def budget_text(budget: Budget) -> str:
    """The budget as it is written in tables: text as given, 12 as `12`, 0.1 as `10%`."""
    if isinstance(budget, str):
        return budget.strip()
    if isinstance(budget, Integral) and not isinstance(budget, bool):
        return str(int(budget))
    if isinstance(budget, Real) and not isinstance(budget, bool) and math.isfinite(budget):
        return f"{_plain(Decimal(str(float(budget))) * 100)}%"
    raise UsageError(f"{budget!r} is not a budget.", _ALLOWED)


def budget_size(budget: Budget, n_heads: int, noun: str = "heads") -> int:
    """Number of heads that a budget removes out of `n_heads`; shares are rounded to the nearest head, halves up.

    `noun` is what is counted, in messages.
    `12` and "12" are heads; 0.1, "0.1" and "10%" are shares. Raises UsageError for what is no budget and for budgets
    below 0, above 100 % or above the number of heads.
    """
    text = budget_text(budget)
    match = _TEXT.match(text)
    if not match:
        raise UsageError(f"{text!r} is not a budget.", _ALLOWED)
    number, per_cent = Decimal(match.group(1)), bool(match.group(2))
    if not per_cent and "." not in match.group(1):
        if number < 0:
            raise UsageError(f"A budget of {text} {noun} is out of range.", "Budgets start at 0, nothing removed.")
        if number > n_heads:
            raise UsageError(
                f"A budget of {text} {noun} is out of range.", f"There are {n_heads} {noun} to choose from."
            )
        return int(number)
    share = number / 100 if per_cent else number
    if not 0 <= share <= 1:
        raise UsageError(f"A budget of {text} is out of range.", "Shares go from 0% to 100% (0.0 to 1.0).")
    return int((share * n_heads).quantize(Decimal(1), rounding=ROUND_HALF_UP))


def parse_budgets(budgets: str | Budget | Iterable[Budget]) -> list[Budget]:
    """The budgets in `0,10%,20%`, or in a list; each once, and 0 (nothing removed) first where it is missing.

    Raises UsageError where there are none.
    """
    if isinstance(budgets, str):
        parts: list[Budget] = [part.strip() for part in budgets.split(",") if part.strip()]
    else:
        parts = [budgets] if isinstance(budgets, Real) else list(budgets)  # type: ignore[list-item, arg-type]
    if not parts:
        raise UsageError("No budgets are given.", _ALLOWED)
    unique = list({budget_text(budget): budget for budget in parts}.values())
    # 0 heads and 0 % are 0 in a model of any size.
    return unique if any(_is_zero(budget) for budget in unique) else [0, *unique]


def _is_zero(budget: Budget) -> bool:
    match = _TEXT.match(budget_text(budget))
    return match is not None and Decimal(match.group(1)) == 0


def _plain(number: Decimal) -> str:
    """12.50 as 12.5, 10.0 as 10, never with an exponent."""
    text = f"{number:f}"
    return text.rstrip("0").rstrip(".") if "." in text else text
