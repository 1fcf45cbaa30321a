"""Linear layers and convolutions as plain matrix products whose gradients move the weights at once."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import Function, once_differentiable
from torch.nn.functional import pad

from hpcfl.training.step.sgd import SgdInBackward

FEW_ROWS = 64
"""Below so many rows a product is faster as (w·xᵀ)ᵀ."""
FEW_PLACES = 4
"""Up to so many outputs per channel a convolution is faster as a product of gathered columns."""


def multiply(x_RI: Tensor, w_OI: Tensor, y_RO: Tensor) -> None:
    """Writes x·wᵀ into y."""
    if len(x_RI) < FEW_ROWS:
        y_RO.copy_((w_OI @ x_RI.t()).t())
    else:
        torch.mm(x_RI, w_OI.t(), out=y_RO)


class _Linear(Function):
    @staticmethod
    def forward(ctx: Any, x_BI: Tensor, weight: Tensor, bias: Tensor | None, sgd: SgdInBackward) -> Tensor:
        x_RI = x_BI.reshape(-1, x_BI.shape[-1])
        ctx.save_for_backward(x_RI, weight)
        ctx.sgd, ctx.shape = sgd, x_BI.shape
        y_BO = x_BI.new_empty(*x_BI.shape[:-1], len(weight))
        y_RO = y_BO.view(-1, len(weight))
        multiply(x_RI, weight, y_RO)
        if bias is not None:
            y_RO += bias
        return y_BO

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, g_BO: Tensor) -> Any:
        x_RI, weight = ctx.saved_tensors
        g_RO = g_BO.reshape(-1, len(weight))
        gx = (g_RO @ weight).view(ctx.shape) if ctx.needs_input_grad[0] else None
        return gx, *_weights(ctx, weight, g_RO, [(weight, x_RI)]), None


def _weights(
    ctx: Any, weight: Tensor, g_RO: Tensor, parts: list[tuple[Tensor, Tensor]]
) -> tuple[Tensor | None, Tensor | None]:
    """Moves the weight, or returns its gradient where it has more than one use; and returns the bias's.

    `parts` are views of the weight with the inputs that each was multiplied with.
    """
    sgd: SgdInBackward = ctx.sgd
    bias_gradient = g_RO.sum(0) if ctx.needs_input_grad[2] else None
    if not ctx.needs_input_grad[1]:
        return None, bias_gradient
    if sgd.uses[weight] == 1:
        for view_OI, x_RI in parts:
            sgd.along_product(weight, view_OI, g_RO, x_RI)
        return None, bias_gradient
    gradient = torch.zeros_like(weight)
    for view_OI, x_RI in parts:
        place = view_OI.storage_offset() - weight.storage_offset()
        gradient.as_strided(view_OI.shape, view_OI.stride(), place).addmm_(g_RO.t(), x_RI)
    return gradient, bias_gradient


def linear(layer: nn.Linear, sgd: SgdInBackward, x_BI: Tensor) -> Tensor:
    """Returns what the layer does, and moves its weights in the backward pass."""
    sgd.used(layer.weight)
    return _Linear.apply(x_BI, layer.weight, layer.bias, sgd)


@dataclass(frozen=True)
class Axis:
    """A convolution along one axis, without the taps that never meet a pixel."""

    size: int
    stride: int
    outputs: int
    first: int
    taps: int
    before: int
    """Zeros before the image that the taps reach."""
    after: int

    def met(self, tap: int) -> tuple[slice, slice]:
        """Returns which outputs see a pixel through this tap, and these pixels."""
        at = tap - self.before
        low = max(0, -(at // self.stride))
        high = min(self.outputs, -((at - self.size) // self.stride))
        return slice(low, high), slice(low * self.stride + at, (high - 1) * self.stride + at + 1, self.stride)


@cache
def axis(size: int, kernel: int, stride: int, padding: int) -> Axis | None:
    """Returns how a kernel lies on an axis; None where it is stranger than that."""
    outputs = (size + 2 * padding - kernel) // stride + 1
    met = [
        tap for tap in range(kernel) if any(0 <= o * stride + tap - padding < size for o in range(outputs))
    ]
    if not met or met[0] > padding:
        return None
    first, taps = met[0], met[-1] + 1 - met[0]
    before = padding - first
    return Axis(
        size, stride, outputs, first, taps, before, max(0, (outputs - 1) * stride + taps - before - size)
    )


def columns(x_BHWC: Tensor, down: Axis, right: Axis) -> Tensor:
    """Returns what each output sees, [B·outputs, taps·C]: a view where nothing is seen twice."""
    if down.before or down.after or right.before or right.after:
        x_BHWC = pad(x_BHWC, (0, 0, right.before, right.after, down.before, down.after))
    x_BHWC = x_BHWC.contiguous()
    b, h, w, c = x_BHWC.stride()
    batch, channels = len(x_BHWC), x_BHWC.shape[3]
    return x_BHWC.as_strided(
        (batch, down.outputs, right.outputs, down.taps, right.taps, channels),
        (b, h * down.stride, w * right.stride, h, w, c),
    ).reshape(batch * down.outputs * right.outputs, down.taps * right.taps * channels)


def scatter_columns(x_RI: Tensor, batch: int, down: Axis, right: Axis) -> Tensor:
    """Adds columns to the pixels that they came from, the transpose of `columns`: [B, H, W, C]."""
    seen = x_RI.view(batch, down.outputs, right.outputs, down.taps, right.taps, -1)
    if down.taps == right.taps == down.stride == right.stride == 1 and not down.before and not right.before:
        return seen[:, :, :, 0, 0]
    x_BHWC = x_RI.new_zeros(batch, down.size, right.size, seen.shape[-1])
    for row in range(down.taps):
        from_rows, to_rows = down.met(row)
        for column in range(right.taps):
            from_columns, to_columns = right.met(column)
            x_BHWC[:, to_rows, to_columns] += seen[:, from_rows, from_columns, row, column]
    return x_BHWC


def tiles(weight: Tensor, down: Axis, right: Axis) -> list[Tensor]:
    """Returns the taps in use as matrices, views of a weight in channels-last order [O, H, W, I]."""
    w_OHWI = weight.permute(0, 2, 3, 1)
    used = w_OHWI[:, down.first : down.first + down.taps, right.first : right.first + right.taps]
    rows = [used] if right.taps == weight.shape[3] or down.taps == 1 else list(used.split(1, 1))
    return [row.view(len(weight), -1) for row in rows]


class _Convolution(Function):
    @staticmethod
    def forward(
        ctx: Any,
        x_BCHW: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        sgd: SgdInBackward,
        down: Axis,
        right: Axis,
    ) -> Tensor:
        x_RI = columns(x_BCHW.permute(0, 2, 3, 1), down, right)
        ctx.save_for_backward(x_RI, weight)
        parts = tiles(weight, down, right)
        ctx.sgd, ctx.parts, ctx.down, ctx.right, ctx.batch = sgd, parts, down, right, len(x_BCHW)
        y_BOHW = torch.empty(
            (len(x_BCHW), len(weight), down.outputs, right.outputs),
            dtype=x_RI.dtype,
            device=x_RI.device,
            memory_format=torch.channels_last,
        )
        y_RO = y_BOHW.permute(0, 2, 3, 1).view(-1, len(weight))
        inputs = x_RI.chunk(len(parts), 1)
        multiply(inputs[0], parts[0], y_RO)
        for part_OI, input_RI in zip(parts[1:], inputs[1:], strict=True):
            y_RO.addmm_(input_RI, part_OI.t())
        if bias is not None:
            y_RO += bias
        return y_BOHW

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, g_BOHW: Tensor) -> Any:
        x_RI, weight = ctx.saved_tensors
        g_RO = g_BOHW.permute(0, 2, 3, 1).reshape(-1, len(weight))
        gx, parts = None, ctx.parts
        if ctx.needs_input_grad[0]:
            gx_RI = torch.empty_like(x_RI)
            for part_OI, gx_part in zip(parts, gx_RI.chunk(len(parts), 1), strict=True):
                torch.mm(g_RO, part_OI, out=gx_part)
            gx = scatter_columns(gx_RI, ctx.batch, ctx.down, ctx.right).permute(0, 3, 1, 2)
        inputs = x_RI.chunk(len(parts), 1)
        return gx, *_weights(ctx, weight, g_RO, list(zip(parts, inputs, strict=True))), None, None, None


def convolution(layer: nn.Conv2d, sgd: SgdInBackward, x_BCHW: Tensor) -> Tensor:
    """Returns what the layer does; where it is small or pointwise, as a product."""
    (down, right), weight, bias = _axes(layer, x_BCHW), layer.weight, layer.bias
    if down is None or right is None:
        return layer._conv_forward(x_BCHW, weight, bias)
    if layer.groups > 1:
        return _depthwise(x_BCHW, weight, bias, down, right)
    sgd.used(weight)
    return _Convolution.apply(x_BCHW, weight, bias, sgd, down, right)


def _depthwise(x_BCHW: Tensor, weight: Tensor, bias: Tensor | None, down: Axis, right: Axis) -> Tensor:
    """Returns a convolution of each channel with its own kernel that has one output: a sum over pixels."""
    used = weight[:, 0, down.first : down.first + down.taps, right.first : right.first + right.taps]
    met = x_BCHW[:, :, : down.taps, : right.taps]
    y_BCHW = met * used if down.taps == right.taps == 1 else (met * used).sum((2, 3), keepdim=True)
    return y_BCHW if bias is None else y_BCHW + bias[:, None, None]


def _axes(layer: nn.Conv2d, x_BCHW: Tensor) -> tuple[Axis | None, Axis | None]:
    """Returns both axes of a convolution that is better done as a product."""
    if isinstance(layer.padding, str) or layer.padding_mode != "zeros" or layer.dilation != (1, 1):
        return None, None
    if x_BCHW.dim() != 4:
        return None, None
    size = zip(x_BCHW.shape[2:], layer.kernel_size, layer.stride, layer.padding, strict=True)
    down, right = (axis(*each) for each in size)
    if down is None or right is None:
        return None, None
    places = down.outputs * right.outputs
    if layer.groups > 1:
        whole = not (down.before or down.after or right.before or right.after)
        good = layer.groups == layer.in_channels == layer.out_channels and places == 1 and whole
    else:
        good = layer.kernel_size == (1, 1) or places <= FEW_PLACES
    return (down, right) if good else (None, None)
