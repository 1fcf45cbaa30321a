"""Linear layers and convolutions as matrix products that update their weights in the backward pass."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import Function, once_differentiable
from torch.nn.functional import pad

from hpcfl.training.step.optimizer import OptimizerInBackward

FEW_OUTPUTS = 4
"""With at most so many outputs per channel a convolution is faster as im2col and a matrix product."""


ONEDNN = torch.backends.mkldnn.is_available() and hasattr(torch.ops.mkldnn, "_linear_pointwise")
"""Whether torch offers oneDNN's product, which is faster than that of BLAS for few rows."""


def product(x_RI: Tensor, w_OI: Tensor, bias: Tensor | None = None) -> Tensor:
    """Returns x·wᵀ + b for dense matrices; oneDNN is a thousand times slower with others."""
    if ONEDNN and x_RI.device.type == "cpu" and x_RI.dtype == torch.float32:
        y_RO: Tensor = torch.ops.mkldnn._linear_pointwise(x_RI, w_OI, bias, "none", [], "")
        return y_RO
    return nn.functional.linear(x_RI, w_OI, bias)


class _Linear(Function):
    """x·wᵀ + b; its backward pass updates the weight or returns its gradient."""

    @staticmethod
    def forward(
        ctx: Any, x_BI: Tensor, weight: Tensor, bias: Tensor | None, optimizer: OptimizerInBackward
    ) -> Tensor:
        x_RI = x_BI.reshape(-1, x_BI.shape[-1]).contiguous()
        ctx.save_for_backward(x_RI, weight)
        ctx.optimizer, ctx.shape = optimizer, x_BI.shape
        return product(x_RI, weight, bias).resize_(*x_BI.shape[:-1], len(weight))

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, g_BO: Tensor) -> Any:
        x_RI, weight = ctx.saved_tensors
        g_RO = g_BO.reshape(-1, len(weight)).contiguous()
        gx = product(g_RO, weight.t()).view(ctx.shape) if ctx.needs_input_grad[0] else None
        return gx, *_weight_gradient(ctx, weight, g_RO, [(weight, x_RI)]), None


def _weight_gradient(
    ctx: Any, weight: Tensor, g_RO: Tensor, parts: list[tuple[Tensor, Tensor]]
) -> tuple[Tensor | None, Tensor | None]:
    """Returns the gradients of weight and bias; that of the weight is None if it is updated here.

    The weight is updated here if it is used once in this step. `parts` are views of the weight and the inputs
    that each was multiplied with.
    """
    optimizer: OptimizerInBackward = ctx.optimizer
    bias_gradient = g_RO.sum(0) if ctx.needs_input_grad[2] else None
    if not ctx.needs_input_grad[1]:
        return None, bias_gradient
    if optimizer.updates_by_product(weight):
        optimizer.update_by_product(weight, parts, g_RO)
        return None, bias_gradient
    gradient = torch.zeros_like(weight)
    for view_OI, x_RI in parts:
        offset = view_OI.storage_offset() - weight.storage_offset()
        gradient.as_strided(view_OI.shape, view_OI.stride(), offset).addmm_(g_RO.t(), x_RI)
    return gradient, bias_gradient


def linear(layer: nn.Linear, optimizer: OptimizerInBackward, x_BI: Tensor) -> Tensor:
    """The forward pass of a Linear layer whose weight is updated in the backward pass."""
    optimizer.count_use(layer.weight)
    return _Linear.apply(x_BI, layer.weight, layer.bias, optimizer)


@dataclass(frozen=True)
class Axis:
    """The geometry of a convolution along one axis, without taps (kernel entries) that meet only padding."""

    size: int
    """Pixels of the input."""
    stride: int
    outputs: int
    first: int
    """The first tap in use."""
    taps: int
    """The number of taps in use."""
    before: int
    """Padding before the first pixel that the taps in use reach."""
    after: int

    def valid(self, tap: int) -> tuple[slice, slice]:
        """Returns the outputs for which this tap meets a pixel, and these pixels."""
        shift = tap - self.before
        low = max(0, -(shift // self.stride))
        high = min(self.outputs, -((shift - self.size) // self.stride))
        pixels = slice(low * self.stride + shift, (high - 1) * self.stride + shift + 1, self.stride)
        return slice(low, high), pixels


@cache
def conv_axis(size: int, kernel: int, stride: int, padding: int) -> Axis | None:
    """Returns the geometry of a kernel on an axis; None if the taps within the padding meet no pixel."""
    outputs = (size + 2 * padding - kernel) // stride + 1
    used = [
        tap for tap in range(kernel) if any(0 <= o * stride + tap - padding < size for o in range(outputs))
    ]
    if not used or used[0] > padding:
        return None
    first, taps = used[0], used[-1] + 1 - used[0]
    before = padding - first
    return Axis(
        size, stride, outputs, first, taps, before, max(0, (outputs - 1) * stride + taps - before - size)
    )


def im2col(x_BHWC: Tensor, axis_h: Axis, axis_w: Axis) -> Tensor:
    """Returns the input patch of each output, [B·outputs, taps·C]; a view if patches do not overlap."""
    if axis_h.before or axis_h.after or axis_w.before or axis_w.after:
        x_BHWC = pad(x_BHWC, (0, 0, axis_w.before, axis_w.after, axis_h.before, axis_h.after))
    x_BHWC = x_BHWC.contiguous()
    b, h, w, c = x_BHWC.stride()
    batch, channels = len(x_BHWC), x_BHWC.shape[3]
    return x_BHWC.as_strided(
        (batch, axis_h.outputs, axis_w.outputs, axis_h.taps, axis_w.taps, channels),
        (b, h * axis_h.stride, w * axis_w.stride, h, w, c),
    ).reshape(batch * axis_h.outputs * axis_w.outputs, axis_h.taps * axis_w.taps * channels)


def col2im(x_RI: Tensor, batch: int, axis_h: Axis, axis_w: Axis) -> Tensor:
    """Returns the columns summed into their pixels, [B, H, W, C]: the transpose of `im2col`."""
    patches = x_RI.view(batch, axis_h.outputs, axis_w.outputs, axis_h.taps, axis_w.taps, -1)
    if (
        axis_h.taps == axis_w.taps == axis_h.stride == axis_w.stride == 1
        and not axis_h.before
        and not axis_w.before
    ):
        return patches[:, :, :, 0, 0]
    x_BHWC = x_RI.new_zeros(batch, axis_h.size, axis_w.size, patches.shape[-1])
    for row in range(axis_h.taps):
        from_rows, to_rows = axis_h.valid(row)
        for column in range(axis_w.taps):
            from_columns, to_columns = axis_w.valid(column)
            x_BHWC[:, to_rows, to_columns] += patches[:, from_rows, from_columns, row, column]
    return x_BHWC


def weight_matrices(weight: Tensor, axis_h: Axis, axis_w: Axis) -> list[Tensor]:
    """Returns the taps in use as matrices [O, taps·I], views of a channels-last weight [O, H, W, I]."""
    w_OHWI = weight.permute(0, 2, 3, 1)
    used = w_OHWI[:, axis_h.first : axis_h.first + axis_h.taps, axis_w.first : axis_w.first + axis_w.taps]
    rows = [used] if axis_w.taps == weight.shape[3] or axis_h.taps == 1 else list(used.split(1, 1))
    return [row.view(len(weight), -1) for row in rows]


class _Convolution(Function):
    """A convolution by im2col; its backward pass updates the weight or returns its gradient."""

    @staticmethod
    def forward(
        ctx: Any,
        x_BCHW: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        optimizer: OptimizerInBackward,
        axis_h: Axis,
        axis_w: Axis,
    ) -> Tensor:
        x_RI = im2col(x_BCHW.permute(0, 2, 3, 1), axis_h, axis_w)
        ctx.save_for_backward(x_RI, weight)
        parts = weight_matrices(weight, axis_h, axis_w)
        ctx.optimizer, ctx.parts, ctx.batch = optimizer, parts, len(x_BCHW)
        ctx.axis_h, ctx.axis_w = axis_h, axis_w
        inputs = x_RI.chunk(len(parts), 1)
        y_RO = nn.functional.linear(inputs[0], parts[0], bias)
        for part_OI, input_RI in zip(parts[1:], inputs[1:], strict=True):
            y_RO.addmm_(input_RI, part_OI.t())
        shape = len(x_BCHW), len(weight), axis_h.outputs, axis_w.outputs
        strides = shape[1] * shape[2] * shape[3], 1, shape[1] * shape[3], shape[1]  # channels last
        return y_RO.as_strided_(shape, strides)  # in place: what is returned may not be a view

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, g_BOHW: Tensor) -> Any:
        x_RI, weight = ctx.saved_tensors
        g_RO = g_BOHW.permute(0, 2, 3, 1).reshape(-1, len(weight))
        gx, parts = None, ctx.parts
        if ctx.needs_input_grad[0]:
            gradients = [g_RO @ part_OI for part_OI in parts]
            gx_RI = torch.cat(gradients, 1) if len(parts) > 1 else gradients[0]
            gx = col2im(gx_RI, ctx.batch, ctx.axis_h, ctx.axis_w).permute(0, 3, 1, 2)
        inputs = x_RI.chunk(len(parts), 1)
        pairs = list(zip(parts, inputs, strict=True))
        return gx, *_weight_gradient(ctx, weight, g_RO, pairs), None, None, None


def convolution(layer: nn.Conv2d, optimizer: OptimizerInBackward, x_BCHW: Tensor) -> Tensor:
    """The forward pass of a convolution: a matrix product if it is small or pointwise, else torch's own."""
    (axis_h, axis_w), weight, bias = _axes(layer, x_BCHW), layer.weight, layer.bias
    if axis_h is None or axis_w is None:
        return layer._conv_forward(x_BCHW, weight, bias)
    if layer.groups > 1:
        return _depthwise(x_BCHW, weight, bias, axis_h, axis_w)
    optimizer.count_use(weight)
    return _Convolution.apply(x_BCHW, weight, bias, optimizer, axis_h, axis_w)


def _depthwise(x_BCHW: Tensor, weight: Tensor, bias: Tensor | None, axis_h: Axis, axis_w: Axis) -> Tensor:
    """Returns a depthwise convolution with one output per channel: a weighted sum over pixels."""
    used = weight[:, 0, axis_h.first : axis_h.first + axis_h.taps, axis_w.first : axis_w.first + axis_w.taps]
    pixels = x_BCHW[:, :, : axis_h.taps, : axis_w.taps]
    y_BCHW = pixels * used if axis_h.taps == axis_w.taps == 1 else (pixels * used).sum((2, 3), keepdim=True)
    return y_BCHW if bias is None else y_BCHW + bias[:, None, None]


def _axes(layer: nn.Conv2d, x_BCHW: Tensor) -> tuple[Axis | None, Axis | None]:
    """Returns the geometry along both axes; (None, None) if torch's own convolution is to be used."""
    if isinstance(layer.padding, str) or layer.padding_mode != "zeros" or layer.dilation != (1, 1):
        return None, None
    if x_BCHW.dim() != 4:
        return None, None
    size = zip(x_BCHW.shape[2:], layer.kernel_size, layer.stride, layer.padding, strict=True)
    axis_h, axis_w = (conv_axis(*each) for each in size)
    if axis_h is None or axis_w is None:
        return None, None
    outputs = axis_h.outputs * axis_w.outputs
    if layer.groups > 1:
        padded = axis_h.before or axis_h.after or axis_w.before or axis_w.after
        suits = layer.groups == layer.in_channels == layer.out_channels and outputs == 1 and not padded
    else:
        suits = layer.kernel_size == (1, 1) or outputs <= FEW_OUTPUTS
    return (axis_h, axis_w) if suits else (None, None)
