"""What brings every network to the same interface: d features from any image."""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn.functional import adaptive_avg_pool1d, pad


class Extractor(nn.Module):
    """A network without its classifier, and its features brought to width d.

    Adaptive average pooling over the feature vector, as the papers' code does: wider vectors are averaged in
    windows, narrower ones repeated.
    """

    def __init__(self, net: nn.Module, features: int, smallest: int = 1):
        super().__init__()
        self.net = net
        self.features = features
        self.smallest = smallest

    def forward(self, x_B: Tensor) -> Tensor:
        short = self.smallest - min(x_B.shape[-2:])
        if short > 0:  # black all around, for networks that halve an image too often
            x_B = pad(x_B, (short // 2, short - short // 2) * 2)
        z_BF = self.net(x_B)
        if z_BF.shape[1] == self.features:
            return z_BF
        return adaptive_avg_pool1d(z_BF[:, None], self.features)[:, 0]


def without_classifier(net: nn.Module, channels: int) -> nn.Module:
    """Returns a network of torchvision with features as output and so many input channels."""
    name = "fc" if hasattr(net, "fc") else "classifier"
    setattr(net, name, nn.Identity())
    if channels != 3:
        place, stem = next((n, m) for n, m in net.named_modules() if isinstance(m, nn.Conv2d))
        owner = net.get_submodule(place.rpartition(".")[0])
        fresh = nn.Conv2d(
            channels,
            stem.out_channels,
            stem.kernel_size,  # type: ignore[arg-type]
            stem.stride,  # type: ignore[arg-type]
            stem.padding,  # type: ignore[arg-type]
            bias=stem.bias is not None,
        )
        setattr(owner, place.rpartition(".")[2], fresh)
    return net
