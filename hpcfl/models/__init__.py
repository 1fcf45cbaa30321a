"""Networks: a registry that knows every name without torch, and one file per family."""

# each registers its architectures
from hpcfl.models import cnn as cnn
from hpcfl.models import groups as groups
from hpcfl.models import mlp as mlp
from hpcfl.models import mobile as mobile
from hpcfl.models import resnet as resnet
