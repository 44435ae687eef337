"""The names of headlab.testing; each is imported when it is first used."""

from .examples import ExampleTask as ExampleTask
from .examples import example_heads as example_heads
from .label_checks import check_label as check_label
from .metric_checks import check_metric as check_metric
from .score_checks import check_score as check_score
from .task_checks import check_task as check_task
from .tiny.models import tiny_model as tiny_model

__all__: list[str]
