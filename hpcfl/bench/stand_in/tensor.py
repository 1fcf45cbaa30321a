"""The tensors of a stand-in device, and what their operations count."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree

from hpcfl.bench.stand_in.counts import NAME, count_storage, counts
from hpcfl.bench.stand_in.host_memory import fill_later, from_host, is_pinned, to_host

WAITS = {
    *("_local_scalar_dense", "nonzero", "masked_select", "unique_dim", "_unique", "_unique2", "equal"),
    *("bincount", "_linalg_svd", "_linalg_eigh", "unique_consecutive", "is_nonzero"),
}
"""Operations for whose result a GPU's host waits."""
FREE = {
    "empty",
    "empty_like",
    "empty_strided",
    "new_empty",
    "new_empty_strided",
    "detach",
    "_to_copy",
    "copy_",
}
"""Operations that are no kernel; views are none either, and copies are counted apart."""
has_float64 = True
_current = 0


def current_device() -> int:
    """Returns the number of this process's device."""
    return _current


def index_of(device: Any) -> int:
    """Returns the number of a device; that of the current one if none is given."""
    index = device if isinstance(device, int) or device is None else torch.device(device).index
    return _current if index is None else int(index)


def set_device(device: Any) -> None:
    """Makes a device the current one."""
    global _current
    _current = index_of(device)


class StandInTensor(Tensor):
    """A tensor of a stand-in device; `raw` is the CPU tensor that it holds.

    For torch's C++ code, which knows one such device, all are on `standin:0`; `index` tells them apart.
    """

    raw: Tensor
    index: int  # type: ignore[assignment]
    __torch_function__ = torch._C._disabled_torch_function_impl  # type: ignore[assignment]

    @staticmethod
    def __new__(cls, raw: Tensor, device: torch.device) -> StandInTensor:
        if raw.dtype == torch.float64 and not has_float64:
            raise TypeError(f"{device} has no float64")
        made: StandInTensor = Tensor._make_wrapper_subclass(
            cls, raw.shape, raw.stride(), raw.storage_offset(), dtype=raw.dtype, device=torch.device(NAME, 0)
        )
        made.raw, made.index = raw, device.index
        count_storage(made, raw.untyped_storage(), device.index)
        return made

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]
        cls, op: Any, types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        return run(op, args, dict(kwargs or {}))

    def __repr__(self, **_: object) -> str:  # type: ignore[override]
        return f"StandInTensor({self.raw!r}, device='{self.device}')"

    @property
    def device(self) -> torch.device:  # type: ignore[override]
        return torch.device(NAME, self.index)

    def to(self, *args: Any, copy: bool = False, **kwargs: Any) -> Tensor:
        """Returns itself if nothing changes; torch would compare with the device that C++ sees."""
        device, dtype, *_ = torch._C._nn._parse_to(*args, **kwargs)
        same = device is None or (device.type == NAME and _device(device) == self.device)
        if same and not copy:
            return self if dtype in (None, self.dtype) else super().to(dtype=dtype)
        return super().to(*args, copy=copy, **kwargs)  # type: ignore[call-overload]

    def tolist(self) -> Any:
        return self.cpu().tolist()

    def numpy(self, *, force: bool = False) -> Any:
        if not force:
            raise TypeError(f"a tensor on {self.device} has no numpy array; use Tensor.cpu() first")
        return self.cpu().numpy()

    def __deepcopy__(self, memo: Any) -> StandInTensor:
        with torch.no_grad():
            made: Any = self.clone()
        made.requires_grad_(self.requires_grad)
        if isinstance(self, torch.nn.Parameter):
            made = torch.nn.Parameter(made, self.requires_grad)
        memo[id(self)] = made
        return made

    def data_ptr(self) -> int:
        return self.raw.data_ptr()


def run(op: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """Runs an operation on the CPU tensors, and counts it."""
    name = op._schema.name.partition("::")[2]
    flat = [leaf for leaf in _pytree.tree_leaves((args, kwargs)) if isinstance(leaf, Tensor)]
    if name in ("_to_copy", "copy_"):
        return _copy(op, name, args, kwargs)
    asked = kwargs.get("device")
    device = _common_device(name, flat, None if asked is None else torch.device(asked))
    if "device" in kwargs:
        kwargs["device"] = "cpu"
    kwargs.pop("pin_memory", None)
    _count(op, name, args)
    raw_args, raw_kwargs = _pytree.tree_map(_raw, (tuple(args), kwargs))
    return _wrapped(op, op(*raw_args, **raw_kwargs), raw_args, raw_kwargs, args, kwargs, device)


def _wrapped(
    op: Any, result: Any, raw_args: Any, raw_kwargs: Any, args: Any, kwargs: Any, device: torch.device
) -> Any:
    """Returns the result with its tensors on the device; where it is an argument, that argument."""
    given = {
        id(raw): each
        for raw, each in zip(
            _pytree.tree_leaves((raw_args, raw_kwargs)),
            _pytree.tree_leaves((tuple(args), kwargs)),
            strict=True,
        )
    }

    def wrap(each: Any) -> Any:
        if not isinstance(each, Tensor):
            return each
        return given.get(id(each), each) if id(each) in given else StandInTensor(each, device)

    return _pytree.tree_map(wrap, result)


def _raw(value: Any) -> Any:
    return value.raw if isinstance(value, StandInTensor) else value


def _common_device(name: str, tensors: Sequence[Tensor], asked: torch.device | None) -> torch.device:
    """Returns the device of an operation; raises RuntimeError if its tensors are on several."""
    devices = {each.device for each in tensors if isinstance(each, StandInTensor)}
    if any(not isinstance(each, StandInTensor) and each.dim() and each.numel() for each in tensors):
        devices.add(torch.device("cpu"))
    if len(devices) > 1:
        raise RuntimeError(
            f"{name}: expected all tensors on the same device, found {sorted(map(str, devices))}"
        )
    return _device(asked) if asked else next(iter(devices), _device(torch.device(NAME)))


def _device(asked: torch.device) -> torch.device:
    """Returns the device that is meant; C++ code asks for number 0 and means the current one."""
    return torch.device(NAME, asked.index or current_device())


def _count(op: Any, name: str, args: Sequence[Any]) -> None:
    by_mask = (
        name.startswith("index")
        and len(args) > 1
        and isinstance(args[1], list | tuple)
        and any(isinstance(index, Tensor) and index.dtype in (torch.bool, torch.uint8) for index in args[1])
    )
    if by_mask and name != "index":  # a single number is filled in by a mask without waiting
        by_mask = args[2].numel() > 1
    if name in WAITS or by_mask:
        counts.wait(name)
    if name == "_local_scalar_dense":
        counts.bytes_out += args[0].raw.element_size()
    elif name not in FREE and not op.is_view:
        counts.kernels += 1


def _copy(op: Any, name: str, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """Copies within a device, between devices, or between a device and the host."""
    if name == "_to_copy":
        source, asked = args[0], kwargs.pop("device", None)
        target = torch.device(asked) if asked is not None else source.device
        if target.type == NAME and asked is not None:
            target = _device(target)
        kwargs.pop("pin_memory", None)
        later = bool(kwargs.pop("non_blocking", False))
        new = op(_raw(source), **kwargs) if target == source.device else op(_raw(source).clone(), **kwargs)
        if target == source.device:
            counts.kernels += 1
        elif target.type == "cpu":
            return to_host(new, later, source.index)
        else:
            from_host(source, later)
        return StandInTensor(new, target)
    into, source = args[0], args[1]
    later = bool(args[2] if len(args) > 2 else kwargs.get("non_blocking", False))
    if into.device == source.device:
        counts.kernels += 1
    elif into.device.type == "cpu":
        counts.bytes_out += source.raw.nbytes
        if later and is_pinned(into):
            fill_later(into.detach(), source.raw.to(into.dtype, copy=True), source.index)
            return into
        counts.wait("copy to the host")
    elif source.dim() or source.device.type != "cpu":
        from_host(source, later)
    _raw(into).copy_(_raw(source))
    return into
