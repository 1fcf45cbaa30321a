"""One training step of a network: forward, loss, backward, update."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from hpcfl.config.schema import TrainConfig
from hpcfl.models.network import Network
from hpcfl.training.step.options import StepOptions

Batch = tuple[Tensor, Tensor]
"""Inputs or features, and labels or pseudo-labels."""
LossTerms = Callable[[Tensor, Tensor, Batch | None], Mapping[str, tuple[float, Tensor]]]
"""(features, labels, features and pseudo-labels of strong views) → weight and value of each term by name."""

WARMUP = 3
"""Steps of a client before one is captured as a CUDA graph, so that libraries are initialised."""


class Step:
    """The training step of a network: calling it trains on one batch."""

    def __init__(self, network: Network, settings: TrainConfig, options: StepOptions):
        self.network, self.settings, self.options = network, settings, options
        self.sgd = options.sgd(network, settings)
        self.local_loss: LossTerms | None = None
        self.ratios: dict[str, Tensor] | None = None
        """Gradient norms by features in the first batch: each local loss term ÷ cross-entropy."""

    def begin(self, local_loss: LossTerms | None) -> None:
        """Starts the local training of a client in a round, without momentum of the last one."""
        self.network.train()
        self.sgd.reset()
        self.local_loss, self.ratios = local_loss, None

    def end(self) -> None:
        """Drops everything that belongs to the client."""
        self.sgd.reset()
        self.local_loss = None

    def features(self, x_B: Tensor) -> Tensor:
        """Returns the features of a batch."""
        with self.options.autocast(x_B.device.type):
            z_BD: Tensor = self.network.extractor(x_B)
        return z_BD.float() if self.options.bfloat16 else z_BD

    def logits(self, z_BD: Tensor) -> Tensor:
        """Returns the logits of the head."""
        with self.options.autocast(z_BD.device.type):
            logit_BK: Tensor = self.network.head(z_BD)
        return logit_BK.float() if self.options.bfloat16 else logit_BK

    def __call__(
        self, x_B: Tensor, y_B: Tensor, strong: Batch | None = None
    ) -> tuple[dict[str, Tensor], Tensor]:
        """Updates the parameters and returns the terms of the loss and the features: ProtoNorm Eq. (4).

        `strong` are strong views of unlabelled samples with pseudo-labels. They go through the extractor
        together with the batch, but count only in the consistency term of the local loss.
        """
        x_A = x_B if strong is None else torch.cat([x_B, strong[0]])
        with self.network.frozen_batch_norm() if len(x_A) == 1 else nullcontext():
            z_AD = self.features(x_A)
        z_BD, z_UD = (z_AD, None) if strong is None else (z_AD[: len(x_B)], z_AD[len(x_B) :])
        head_BD = z_BD
        if self.local_loss is not None and self.ratios is None:
            head_BD = self._with_ratio_hook(z_BD, y_B)
        loss = cross_entropy(self.logits(head_BD), y_B)
        terms = {"ce": loss.detach()}
        if self.local_loss is not None:
            strong_features = None if strong is None or z_UD is None else (z_UD, strong[1])
            for name, (weight, term) in self.local_loss(z_BD, y_B, strong_features).items():
                loss = loss + weight * term
                terms[name] = term.detach()
        self.sgd.step(loss)
        return {"loss": loss.detach()} | terms, z_BD.detach()

    def _with_ratio_hook(self, z_BD: Tensor, y_B: Tensor) -> Tensor:
        """Returns the features as input of the head, with a hook that sets `ratios` in the backward pass.

        Only the gradient of the cross-entropy flows through this copy.
        """
        assert self.local_loss is not None
        leaf_BD = z_BD.detach().requires_grad_()
        norms = {
            name: weight * torch.autograd.grad(term, leaf_BD)[0].norm()
            for name, (weight, term) in self.local_loss(leaf_BD, y_B, None).items()
        }

        def set_ratios(gradient_BD: Tensor) -> None:
            self.ratios = {name: norm / gradient_BD.norm() for name, norm in norms.items()}

        head_BD = z_BD.view_as(z_BD)
        head_BD.register_hook(set_ratios)
        return head_BD


class GraphStep(Step):
    """A step as a CUDA graph, captured once per client and round and replayed for all full batches.

    The first WARMUP steps, smaller batches and those with strong views run eagerly. A graph is dropped at the
    end of the round, so that nothing that a method changes between rounds is replayed.
    """

    stream: torch.cuda.Stream | None = None
    num_steps = 0
    replay: Callable[[], None] | None = None

    def end(self) -> None:
        super().end()
        self.num_steps, self.replay = 0, None
        self.x_B = self.y_B = torch.empty(0)
        self.outputs: tuple[dict[str, Tensor], Tensor] = {}, self.x_B

    def __call__(
        self, x_B: Tensor, y_B: Tensor, strong: Batch | None = None
    ) -> tuple[dict[str, Tensor], Tensor]:
        self.num_steps += 1
        if (
            self.num_steps <= WARMUP
            or len(x_B) != self.settings.batch_size
            or len(x_B) == 1
            or strong is not None
        ):
            with self.on_capture_stream():
                return super().__call__(x_B, y_B, strong)
        if self.replay is None:
            self.x_B, self.y_B = x_B.clone(), y_B.clone()
            self.replay = self.capture()
        self.x_B.copy_(x_B)
        self.y_B.copy_(y_B)
        self.replay()
        return self.outputs

    def captured_step(self) -> None:
        """Runs the step on the static input tensors of the graph."""
        self.outputs = super().__call__(self.x_B, self.y_B)

    def capture(self) -> Callable[[], None]:
        """Returns a function that replays `captured_step`; capturing itself updates nothing."""
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=self.stream):
            self.captured_step()
        return graph.replay

    @contextmanager
    def on_capture_stream(self) -> Iterator[None]:
        """Within it, the capture stream is used: autograd remembers the stream of a parameter's first use."""
        self.stream = self.stream or torch.cuda.Stream()
        self.stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self.stream):
            yield
        torch.cuda.current_stream().wait_stream(self.stream)


def make_step(network: Network, settings: TrainConfig, options: StepOptions) -> Step:
    """Returns the training step of a network, as a CUDA graph if the options say so."""
    return (GraphStep if options.graphs else Step)(network, settings, options)
