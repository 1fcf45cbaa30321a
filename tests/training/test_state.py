import torch

from hpcfl.training.state import ALIGN, Layout, bind, copy_into, empty_vector, module_blocks


def test_buffers_keep_their_types_and_blocks_are_aligned_and_apart():
    module = torch.nn.Sequential(torch.nn.Linear(3, 5), torch.nn.BatchNorm1d(5))
    layout = Layout(module_blocks(module, channels_last=True))
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
