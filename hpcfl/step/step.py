"""One training step of a network: forward, loss, backward, update."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from hpcfl.config import Train
from hpcfl.models.network import Network
from hpcfl.step.tune import Way

Guide = Callable[[Tensor, Tensor], Tensor]
"""(features, labels) of a batch → the term that is added to its cross-entropy."""

WARM = 3
"""Steps of a client before one is recorded; libraries set themselves up in them."""


class Step:
    """A network and the way in which it is trained."""

    def __init__(self, network: Network, settings: Train, way: Way):
        self.network, self.settings, self.way = network, settings, way
        self.sgd = way.sgd(network, settings)
        self.guide: Guide | None = None

    def begin(self, guide: Guide | None) -> None:
        """Begins a client's round: SGD starts anew."""
        self.network.train()
        self.sgd.begin()
        self.guide = guide

    def end(self) -> None:
        """Keeps nothing of the client."""
        self.sgd.begin()
        self.guide = None

    def features(self, x_B: Tensor) -> Tensor:
        """Returns the features of a batch."""
        with self.way.arithmetic(x_B.device.type):
            z_BD: Tensor = self.network.extractor(x_B)
        return z_BD.float() if self.way.bfloat16 else z_BD

    def scores(self, z_BD: Tensor) -> Tensor:
        """Returns the classes' scores by the head."""
        with self.way.arithmetic(z_BD.device.type):
            score_BK: Tensor = self.network.head(z_BD)
        return score_BK.float() if self.way.bfloat16 else score_BK

    def __call__(self, x_B: Tensor, y_B: Tensor) -> tuple[Tensor, Tensor]:
        """Returns loss and features of a batch, after moving the parameters: ProtoNorm Eq. (4)."""
        if len(x_B) == 1:
            with self.network.for_one_sample():
                z_BD = self.features(x_B)
        else:
            z_BD = self.features(x_B)
        loss = cross_entropy(self.scores(z_BD), y_B)
        if self.guide is not None:
            loss = loss + self.guide(z_BD, y_B)
        self.sgd.step(loss)
        return loss.detach(), z_BD.detach()


class Recorded(Step):
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
        self.given = self.x_B, self.y_B

    def __call__(self, x_B: Tensor, y_B: Tensor) -> tuple[Tensor, Tensor]:
        self.taken += 1
        if self.taken <= WARM or len(x_B) != self.settings.batch_size or len(x_B) == 1:
            with self.beside():
                return super().__call__(x_B, y_B)
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


def step(network: Network, settings: Train, way: Way) -> Step:
    return (Recorded if way.graphs else Step)(network, settings, way)
