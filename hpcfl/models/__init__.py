"""Networks: a registry of architectures by name, which needs no torch, and one file per family."""

# importing these registers their architectures
from hpcfl.models import cnn as cnn
from hpcfl.models import cnn1d as cnn1d
from hpcfl.models import groups as groups
from hpcfl.models import mlp as mlp
from hpcfl.models import resnet as resnet
from hpcfl.models import torchvision_networks as torchvision_networks
