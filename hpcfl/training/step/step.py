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

Pair = tuple[Tensor, Tensor]
LossTerms = Callable[[Tensor, Tensor, Pair | None], Mapping[str, tuple[float, Tensor]]]
"""(features, labels) of a batch, and of strong views → weight and value of what is added, by name."""

WARMUP = 3
"""Steps of a client before one is recorded; libraries set themselves up in them."""


class Step:
    """A network and the way in which it is trained."""

    def __init__(self, network: Network, settings: TrainConfig, options: StepOptions):
        self.network, self.settings, self.options = network, settings, options
        self.sgd = options.sgd(network, settings)
        self.local_loss: LossTerms | None = None
        self.ratios: dict[str, Tensor] | None = None
        """Gradients of the guide's terms ÷ that of the cross-entropy, by features, of the first batch."""

    def begin(self, local_loss: LossTerms | None) -> None:
        """Begins a client's round: SGD starts anew."""
        self.network.train()
        self.sgd.begin()
        self.local_loss, self.ratios = local_loss, None

    def end(self) -> None:
        """Keeps nothing of the client."""
        self.sgd.begin()
        self.local_loss = None

    def features(self, x_B: Tensor) -> Tensor:
        """Returns the features of a batch."""
        with self.options.arithmetic(x_B.device.type):
            z_BD: Tensor = self.network.extractor(x_B)
        return z_BD.float() if self.options.bfloat16 else z_BD

    def scores(self, z_BD: Tensor) -> Tensor:
        """Returns the classes' scores by the head."""
        with self.options.arithmetic(z_BD.device.type):
            score_BK: Tensor = self.network.head(z_BD)
        return score_BK.float() if self.options.bfloat16 else score_BK

    def __call__(
        self, x_B: Tensor, y_B: Tensor, strong: Pair | None = None
    ) -> tuple[dict[str, Tensor], Tensor]:
        """Returns the parts of the loss and the features, after moving the parameters: ProtoNorm Eq. (4).

        `strong`, strong views of other samples and their pseudo-labels, go through the network together with
        the batch; of them only the guide's consistency term is learned.
        """
        x_A = x_B if strong is None else torch.cat([x_B, strong[0]])
        with self.network.for_one_sample() if len(x_A) == 1 else nullcontext():
            z_AD = self.features(x_A)
        z_BD, z_UD = (z_AD, None) if strong is None else (z_AD[: len(x_B)], z_AD[len(x_B) :])
        seen_BD, first = z_BD, self.local_loss is not None and self.ratios is None
        if first:
            seen_BD = self._watched(z_BD, y_B)
        loss = cross_entropy(self.scores(seen_BD), y_B)
        parts = {"ce": loss.detach()}
        if self.local_loss is not None:
            extra = None if strong is None or z_UD is None else (z_UD, strong[1])
            for name, (weight, term) in self.local_loss(z_BD, y_B, extra).items():
                loss = loss + weight * term
                parts[name] = term.detach()
        self.sgd.step(loss)
        return {"loss": loss.detach()} | parts, z_BD.detach()

    def _watched(self, z_BD: Tensor, y_B: Tensor) -> Tensor:
        """Returns the features for the head; what comes back through them is the cross-entropy's gradient."""
        assert self.local_loss is not None
        leaf_BD = z_BD.detach().requires_grad_()
        own = {
            name: weight * torch.autograd.grad(term, leaf_BD)[0].norm()
            for name, (weight, term) in self.local_loss(leaf_BD, y_B, None).items()
        }

        def compare(gradient_BD: Tensor) -> None:
            self.ratios = {name: norm / gradient_BD.norm() for name, norm in own.items()}

        watched_BD = z_BD.view_as(z_BD)
        watched_BD.register_hook(compare)
        return watched_BD


class GraphStep(Step):
    """A step on a GPU, recorded once per client and round and replayed for all batches of the same size.

    The first steps are taken as they come. Nothing of a recording outlives the round, so that whatever a
    method changes from round to round is never replayed.
    """

    stream: torch.cuda.Stream | None = None
    taken = 0
    replay: Callable[[], None] | None = None

    def end(self) -> None:
        super().end()
        self.taken, self.replay = 0, None
        self.x_B = self.y_B = torch.empty(0)
        self.given: tuple[dict[str, Tensor], Tensor] = {}, self.x_B

    def __call__(
        self, x_B: Tensor, y_B: Tensor, strong: Pair | None = None
    ) -> tuple[dict[str, Tensor], Tensor]:
        self.taken += 1
        if (
            self.taken <= WARMUP
            or len(x_B) != self.settings.batch_size
            or len(x_B) == 1
            or strong is not None
        ):
            with self.beside():
                return super().__call__(x_B, y_B, strong)
        if self.replay is None:
            self.x_B, self.y_B = x_B.clone(), y_B.clone()
            self.replay = self.record()
        self.x_B.copy_(x_B)
        self.y_B.copy_(y_B)
        self.replay()
        return self.given

    def work(self) -> None:
        self.given = super().__call__(self.x_B, self.y_B)

    def record(self) -> Callable[[], None]:
        """Returns what does `work` again; recording alone moves nothing."""
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=self.stream):
            self.work()
        return graph.replay

    @contextmanager
    def beside(self) -> Iterator[None]:
        """Within, work goes to the stream that is recorded: autograd remembers where it met a parameter."""
        self.stream = self.stream or torch.cuda.Stream()
        self.stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self.stream):
            yield
        torch.cuda.current_stream().wait_stream(self.stream)


def make_step(network: Network, settings: TrainConfig, options: StepOptions) -> Step:
    return (GraphStep if options.graphs else Step)(network, settings, options)
