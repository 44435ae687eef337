"""The public names of headlab; each is imported when it is first used."""

from .attention.change.key_gradients import key_gradients as key_gradients
from .attention.heads import Heads as Heads
from .attention.observe.similarity import head_distances as head_distances
from .attention.prove.declared import DeclaredSite as DeclaredSite
from .base.errors import CheckpointError as CheckpointError
from .base.errors import DataError as DataError
from .base.errors import HeadlabError as HeadlabError
from .base.errors import PluginError as PluginError
from .base.errors import ProofError as ProofError
from .base.errors import UnsupportedModelError as UnsupportedModelError
from .base.errors import UsageError as UsageError
from .base.masks import HeadId as HeadId
from .base.masks import HeadMask as HeadMask
from .base.masks import parse_heads as parse_heads
from .commands.plugins import load_plugins as load_plugins
from .labels import Label as Label
from .labels import LabelFamily as LabelFamily
from .labels import load_labels as load_labels
from .metrics import Metric as Metric
from .metrics import metric as metric
from .models import Batch as Batch
from .models import Tokens as Tokens
from .models import open_model as open_model
from .models.texts.encoding import text_batches as text_batches
from .models.texts.reading import read_texts as read_texts
from .pruning.orderings import order as order
from .pruning.sweep import sweep as sweep
from .report.notebook import show as show
from .report.page.page import write_report as write_report
from .runs.folder import save as save
from .runs.tables import load_table as load_table
from .scores import Score as Score
from .scores import ScoreContext as ScoreContext
from .scores import Scores as Scores
from .scores import score as score
from .tasks import Task as Task
from .tasks import task as task

__version__: str
__all__: list[str]
