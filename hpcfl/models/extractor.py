"""Wraps a network so that it returns d features for any image."""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn.functional import adaptive_avg_pool1d, pad


class Extractor(nn.Module):
    """A network without classifier whose features are resized to d.

    Adaptive average pooling over the feature vector, as in the papers' code: wider vectors are averaged over
    windows, entries of narrower ones are repeated. Images smaller than `min_size` are padded. `dropout` is
    the dropout probability of the d features.
    """

    def __init__(self, net: nn.Module, features: int, min_size: int = 1, dropout: float = 0.0):
        super().__init__()
        self.net = net
        self.features = features
        self.min_size = min_size
        self.dropout = nn.Dropout(dropout) if dropout else nn.Identity()

    def forward(self, x_B: Tensor) -> Tensor:
        missing = self.min_size - min(x_B.shape[-2:])
        if missing > 0:  # some networks halve the image too often for small inputs
            x_B = pad(x_B, (missing // 2, missing - missing // 2) * 2)
        z_BF = self.net(x_B)
        if z_BF.shape[1] != self.features:
            z_BF = adaptive_avg_pool1d(z_BF[:, None], self.features)[:, 0]
        z_BD: Tensor = self.dropout(z_BF)
        return z_BD


def without_classifier(net: nn.Module, channels: int) -> nn.Module:
    """Returns torchvision's network with features as output and `channels` input channels."""
    classifier = "fc" if hasattr(net, "fc") else "classifier"
    setattr(net, classifier, nn.Identity())
    if channels != 3:
        path, stem = next((n, m) for n, m in net.named_modules() if isinstance(m, nn.Conv2d))
        parent = net.get_submodule(path.rpartition(".")[0])
        new_stem = nn.Conv2d(
            channels,
            stem.out_channels,
            stem.kernel_size,  # type: ignore[arg-type]
            stem.stride,  # type: ignore[arg-type]
            stem.padding,  # type: ignore[arg-type]
            bias=stem.bias is not None,
        )
        setattr(parent, path.rpartition(".")[2], new_stem)
    return net
