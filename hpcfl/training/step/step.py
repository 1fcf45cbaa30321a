"""One training step of a network: forward, loss, backward, update."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from hpcfl.config.train import TrainConfig
from hpcfl.models.network import Network
from hpcfl.training.samples import Batch
from hpcfl.training.step.options import StepOptions


@dataclass(frozen=True)
class BatchOutputs:
    """What a network gives for a batch, with the labels: all that a loss may depend on."""

    z_BD: Tensor
    logit_BK: Tensor
    y_B: Tensor
    strong: Batch | None = None
    """Features and pseudo-labels of strong views."""

    def detach(self) -> BatchOutputs:
        return BatchOutputs(self.z_BD.detach(), self.logit_BK.detach(), self.y_B)


LossTerms = Callable[[BatchOutputs], Mapping[str, tuple[float, Tensor]]]
"""The terms that are added to the cross-entropy: weight and unweighted value by name."""

WARMUP = 3
"""Steps of a client before one is captured as a CUDA graph, so that libraries are initialised."""


class Step:
    """The training step of a network: calling it trains on one batch."""

    def __init__(self, network: Network, settings: TrainConfig, options: StepOptions):
        self.network, self.settings, self.options = network, settings, options
        self.optimizer = options.optimizer(network, settings)
        self.local_loss: LossTerms | None = None
        self.measure_ratios = False
        self.ratios: dict[str, Tensor] | None = None
        """Gradient norms by features in the first batch: each local loss term ÷ cross-entropy."""

    @property
    def has_batch_norm(self) -> bool:
        return self.network.has_batch_norm

    def begin(self, local_loss: LossTerms | None, measure_ratios: bool = False) -> None:
        """Starts the local training of a client in a round, with a new optimiser."""
        self.network.train()
        self.optimizer.reset()
        self.local_loss, self.ratios = local_loss, None
        self.measure_ratios = measure_ratios and local_loss is not None

    def end(self) -> None:
        """Drops everything that belongs to the client."""
        self.optimizer.reset()
        self.local_loss = None

    def features(self, x_B: Tensor) -> Tensor:
        """Returns the features of a batch."""
        with self.options.autocast(x_B.device.type):
            z_BD: Tensor = self.network.extractor(x_B)
        return z_BD.float() if self.options.bfloat16 else z_BD

    def forward(self, x_B: Tensor, y_B: Tensor) -> BatchOutputs:
        """Returns what the network gives for a training batch."""
        with self.network.frozen_batch_norm() if len(x_B) == 1 else nullcontext():
            z_BD = self.features(x_B)
        return BatchOutputs(z_BD, self.logits(z_BD), y_B)

    def logits(self, z_BD: Tensor) -> Tensor:
        """Returns the logits of the head."""
        with self.options.autocast(z_BD.device.type):
            logit_BK: Tensor = self.network.head(z_BD)
        return logit_BK.float() if self.options.bfloat16 else logit_BK

    def __call__(
        self, x_B: Tensor, y_B: Tensor, strong: Batch | None = None
    ) -> tuple[dict[str, Tensor], BatchOutputs]:
        """Updates the parameters and returns the terms of the loss and the outputs: ProtoNorm Eq. (4).

        `strong` are strong views of unlabelled samples with pseudo-labels. They go through the extractor
        together with the batch, but count only in the consistency term of the local loss.
        """
        x_A = x_B if strong is None else torch.cat([x_B, strong[0]])
        with self.network.frozen_batch_norm() if len(x_A) == 1 else nullcontext():
            z_AD = self.features(x_A)
        z_BD, strong_features = z_AD, None
        if strong is not None:
            z_BD, strong_features = z_AD[: len(x_B)], (z_AD[len(x_B) :], strong[1])
        measures = self.measure_ratios and self.ratios is None
        head_BD = z_BD.view_as(z_BD) if measures else z_BD
        outputs = BatchOutputs(z_BD, self.logits(head_BD), y_B, strong_features)
        if measures:
            self._add_ratio_hook(head_BD, outputs)
        loss = cross_entropy(outputs.logit_BK, y_B)
        terms = {"ce": loss.detach()}
        if self.local_loss is not None:
            for name, (weight, term) in self.local_loss(outputs).items():
                loss = loss + weight * term
                terms[name] = term.detach()
        self.optimizer.step(loss)
        return {"loss": loss.detach()} | terms, outputs.detach()

    def _add_ratio_hook(self, head_BD: Tensor, outputs: BatchOutputs) -> None:
        """Adds a hook to the input of the head that sets `ratios` in the backward pass.

        Only the gradient of the cross-entropy flows through this copy of the features.
        """
        assert self.local_loss is not None
        leaf_BD = outputs.z_BD.detach().requires_grad_()
        norms = {
            name: weight * torch.autograd.grad(term, leaf_BD)[0].norm()
            for name, (weight, term) in self.local_loss(
                BatchOutputs(leaf_BD, outputs.logit_BK.detach(), outputs.y_B)
            ).items()
        }

        def set_ratios(gradient_BD: Tensor) -> None:
            self.ratios = {name: norm / gradient_BD.norm() for name, norm in norms.items()}

        head_BD.register_hook(set_ratios)


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
        self.outputs: tuple[dict[str, Tensor], BatchOutputs] | None = None

    def __call__(
        self, x_B: Tensor, y_B: Tensor, strong: Batch | None = None
    ) -> tuple[dict[str, Tensor], BatchOutputs]:
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
        assert self.outputs is not None
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
