import pytest
import torch

from hpcfl.config import Models
from hpcfl.errors import BadInput
from hpcfl.models.network import build, cost
from hpcfl.models.registry import ARCHITECTURES, GROUPS, chosen
from hpcfl.state import ALIGN, Layout, bind, copy_into, empty_vector, module_blocks

SHAPE, CLASSES, FEATURES = (2,), 6, 24


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_every_architecture_gives_d_features_and_gradients_everywhere(name):
    network = build(name, SHAPE, CLASSES, FEATURES)
    z_BD = network.extractor(torch.randn(8, *SHAPE))
    assert z_BD.shape == (8, FEATURES)
    assert z_BD.min() < 0, "features are linear, not rectified"
    network.head(z_BD).square().sum().backward()
    for parameter in network.parameters():
        assert parameter.grad is not None
        assert parameter.grad.abs().sum() > 0


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_state_to_vector_to_state_is_exact(name):
    first = build(name, SHAPE, CLASSES, FEATURES)
    layout = Layout(module_blocks(first))
    vector = empty_vector(layout.nbytes)
    copy_into(layout.views(vector), first)
    with torch.device("meta"):
        second = build(name, SHAPE, CLASSES, FEATURES)
    bind(second, layout.views(vector.clone()))
    x = torch.randn(5, *SHAPE)
    assert torch.equal(first(x), second(x))


def test_buffers_keep_their_types_and_blocks_are_aligned_and_apart():
    module = torch.nn.Sequential(torch.nn.Linear(3, 5), torch.nn.BatchNorm1d(5))
    layout = Layout(module_blocks(module))
    vector = empty_vector(layout.nbytes)
    views = layout.views(vector)
    assert views["1.num_batches_tracked"].dtype == torch.int64
    assert all(view.data_ptr() % ALIGN == 0 for view in views.values())
    copy_into(views, module)
    bind(module, views)
    module(torch.randn(4, 3))
    assert views["1.num_batches_tracked"].item() == 1
    with torch.no_grad():
        views["0.bias"].fill_(7)
    assert dict(module.named_parameters())["0.bias"].eq(7).all()
    assert views["0.weight"].ne(7).all()


def test_cost_by_hand():
    """2→64→24 and a head 24→6: 2·64+64 + 64·24+24 + 24·6+6 parameters, 2·(2·64 + 64·24 + 24·6) FLOPs."""
    with torch.device("meta"):
        counted = cost(build("mlp_64", SHAPE, CLASSES, FEATURES), SHAPE)
    assert counted.parameters == 2 * 64 + 64 + 64 * 24 + 24 + 24 * 6 + 6
    assert counted.flops == 2 * (2 * 64 + 64 * 24 + 24 * 6)


def test_groups_name_registered_architectures():
    for group in GROUPS.values():
        assert set(group.members) <= set(ARCHITECTURES)


def test_a_list_replaces_the_group():
    assert chosen(Models(list=["mlp_64", "mlp_64", "mlp_256"])) == ("mlp_64", "mlp_64", "mlp_256")
    with pytest.raises(BadInput, match=r"models.list = 'mlp_65': .*nearest: mlp_64"):
        chosen(Models(list=["mlp_65"]))
