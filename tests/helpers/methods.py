"""Methods built from a few settings, and uploads to aggregate."""

from __future__ import annotations

from typing import Any

import torch

from hpcfl.config.method import MethodConfig
from hpcfl.config.schema import Config, FederationConfig
from hpcfl.methods.aggregate import Upload
from hpcfl.methods.catalogue import method_spec
from hpcfl.methods.prototype_method import PrototypeMethod, build_method
from hpcfl.methods.prototypes import Prototypes
from hpcfl.methods.spec import PrototypeSpec

K, D = 5, 3


def build(
    dims: tuple[int, int] = (K, D),
    *,
    config: Config = Config(),
    clients: int = 20,
    samples: int = 1,
    **settings: Any,
) -> PrototypeMethod:
    """Returns the method that these settings of the section `method` describe, for `dims` = (K, D)."""
    chosen = MethodConfig(**settings)
    config = config.model_copy(update={"method": chosen, "federation": FederationConfig(clients=clients)})
    return build_method(prototype_spec(**settings), config, dims, samples=samples)


def prototype_spec(data: str = "any", /, **settings: Any) -> PrototypeSpec:
    """Returns the prototype method that these settings of the section `method` describe on a dataset."""
    spec = method_spec(MethodConfig(**settings), data)
    assert isinstance(spec, PrototypeSpec)
    return spec


def uploads_of(clients: int, seed: int = 0, features: int = D) -> list[Upload]:
    """Returns uploads of random classes, of which class K − 1 is nobody's."""
    generator = torch.Generator().manual_seed(seed)
    uploads = []
    for client in range(clients):
        count_K = torch.randint(0, 4, (K,), generator=generator)
        count_K[-1] = 0
        value_KD = torch.randn(K, features, generator=generator) * (count_K > 0)[:, None]
        uploads.append(Upload(Prototypes(value_KD, count_K > 0), count_K, client))
    return uploads
