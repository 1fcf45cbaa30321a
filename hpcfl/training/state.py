"""A client's state: named, typed, 64-byte-aligned blocks in one byte vector.

Whatever moves or keeps a client moves or keeps these bytes and nothing else.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn

ALIGN = 64


@dataclass(frozen=True)
class Block:
    """One named array of a state."""

    name: str
    dtype: torch.dtype
    shape: tuple[int, ...]
    channels_last: bool = False
    """Kernels [O, I, H, W] lie in memory as [O, H, W, I]."""

    @property
    def nbytes(self) -> int:
        return self.dtype.itemsize * torch.Size(self.shape).numel()


class Layout:
    """Where each block lies in the vector."""

    def __init__(self, blocks: Iterable[Block]):
        self.offsets: dict[str, tuple[Block, int]] = {}
        self.nbytes = 0
        for block in blocks:
            self.offsets[block.name] = block, self.nbytes
            self.nbytes += -(-block.nbytes // ALIGN) * ALIGN

    def views(self, vector_bytes: Tensor) -> dict[str, Tensor]:
        """Returns each block as a tensor that shares the vector's memory."""
        found = {}
        for name, (block, at) in self.offsets.items():
            flat = vector_bytes[at : at + block.nbytes].view(block.dtype)
            if block.channels_last:
                outputs, inputs, height, width = block.shape
                found[name] = flat.view(outputs, height, width, inputs).permute(0, 3, 1, 2)
            else:
                found[name] = flat.view(block.shape)
        return found


def module_blocks(module: nn.Module, channels_last: bool) -> Iterator[Block]:
    """Yields a block per parameter and buffer, each in its own type."""
    for name, tensor in _tensors(module):
        yield Block(name, tensor.dtype, tuple(tensor.shape), channels_last and tensor.dim() == 4)


def bind(module: nn.Module, views: dict[str, Tensor]) -> None:
    """Makes the module's parameters and buffers those views; what is written there is the module's state.

    Views of one tensor count their changes together, and autograd would take a batch-norm's new statistics
    for a change of the weights it keeps: `data` gives each a count of its own.
    """
    for name, tensor in list(_tensors(module)):
        owner = module.get_submodule(name.rpartition(".")[0])
        leaf = name.rpartition(".")[2]
        if isinstance(tensor, nn.Parameter):
            setattr(owner, leaf, nn.Parameter(views[name].data, requires_grad=tensor.requires_grad))
        else:
            owner._buffers[leaf] = views[name].data


@torch.no_grad()
def copy_into(views: dict[str, Tensor], module: nn.Module) -> None:
    """Writes the module's parameters and buffers into their blocks."""
    for name, tensor in _tensors(module):
        views[name].copy_(tensor)


def _tensors(module: nn.Module) -> Iterator[tuple[str, Tensor]]:
    yield from module.named_parameters()
    yield from module.named_buffers()


def empty_vector(nbytes: int, device: torch.device | str = "cpu") -> Tensor:
    """Returns zeroed bytes that start at a multiple of ALIGN."""
    raw = torch.zeros(nbytes + ALIGN, dtype=torch.uint8, device=device)
    return raw[-raw.data_ptr() % ALIGN :][:nbytes]
