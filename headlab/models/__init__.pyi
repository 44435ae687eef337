"""The names of headlab.models; each is imported when it is first used."""

from .checkpoint import Checkpoint as Checkpoint
from .demo.checkpoints import demo_models as demo_models
from .opening import open_model as open_model
from .texts.batch import Batch as Batch
from .texts.batch import Tokens as Tokens

__all__: list[str]
