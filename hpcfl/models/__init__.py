"""Networks: a registry that knows every name without torch, and one file per family."""

from hpcfl.models import mlp as mlp  # registers its architectures
