"""A client's state: named, typed, 64-byte-aligned blocks in one byte vector.

Arena and checkpoints copy these bytes and nothing else of a client.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from hpcfl.utils.accelerator import has_float64

ALIGN = 64


@dataclass(frozen=True)
class Block:
    """One named array of a state."""

    name: str
    dtype: torch.dtype
    shape: tuple[int, ...]
    channels_last: bool = False
    """Whether a convolution weight [O, I, H, W] is stored as [O, H, W, I]."""
    start: float = 0.0
    """The value of every entry before the first round."""
    kept: bool = True
    """Whether it is part of the state; if not, it is scratch memory of the rank that trains the client."""
    bound: float = 0.0
    """If above 0, entries of a kept block start at random, uniformly within ± bound, not at `start`."""

    @property
    def nbytes(self) -> int:
        return self.dtype.itemsize * torch.Size(self.shape).numel()


class Layout:
    """The offset of each block in the byte vector."""

    def __init__(self, blocks: Iterable[Block]):
        self.offsets: dict[str, tuple[Block, int]] = {}
        self.nbytes = 0
        for block in blocks:
            assert block.name not in self.offsets, f"two blocks are called {block.name}"
            self.offsets[block.name] = block, self.nbytes
            self.nbytes += -(-block.nbytes // ALIGN) * ALIGN

    def views(self, vector_bytes: Tensor) -> dict[str, Tensor]:
        """Returns each block as a tensor that shares the vector's memory."""
        return {name: self.view(vector_bytes, name) for name in self.offsets}

    def view(self, vector_bytes: Tensor, name: str) -> Tensor:
        """Returns one block as a tensor that shares the vector's memory."""
        block, offset = self.offsets[name]
        dtype = block.dtype
        if dtype == torch.float64 and not has_float64(vector_bytes.device):
            dtype = torch.int64  # only the bits, for the host
        flat = vector_bytes[offset : offset + block.nbytes].view(dtype)
        if block.channels_last:
            outputs, inputs, height, width = block.shape
            return flat.view(outputs, height, width, inputs).permute(0, 3, 1, 2)
        return flat.view(block.shape)


def module_blocks(module: nn.Module, channels_last: bool) -> Iterator[Block]:
    """Yields a block for each parameter and buffer, with its dtype."""
    for name, tensor in _tensors(module):
        yield Block(name, tensor.dtype, tuple(tensor.shape), channels_last and tensor.dim() == 4)


def bind(module: nn.Module, views: Mapping[str, Tensor]) -> None:
    """Replaces the module's parameters and buffers by the views, so that they share their memory.

    Views of one tensor share a version counter, so autograd would take an update of batch-norm statistics for
    an in-place change of saved weights: `data` gives each view its own counter.
    """
    for name, tensor in list(_tensors(module)):
        parent = module.get_submodule(name.rpartition(".")[0])
        attribute = name.rpartition(".")[2]
        if isinstance(tensor, nn.Parameter):
            setattr(parent, attribute, nn.Parameter(views[name].data, requires_grad=tensor.requires_grad))
        else:
            parent._buffers[attribute] = views[name].data


@torch.no_grad()
def copy_into(views: Mapping[str, Tensor], module: nn.Module) -> None:
    """Copies the module's parameters and buffers into their blocks."""
    for name, tensor in _tensors(module):
        views[name].copy_(tensor)


def _tensors(module: nn.Module) -> Iterator[tuple[str, Tensor]]:
    yield from module.named_parameters()
    yield from module.named_buffers()


def empty_vector(nbytes: int, device: torch.device | str = "cpu") -> Tensor:
    """Returns zeroed bytes that start at a multiple of ALIGN."""
    raw = torch.zeros(nbytes + ALIGN, dtype=torch.uint8, device=device)
    return raw[-raw.data_ptr() % ALIGN :][:nbytes]
