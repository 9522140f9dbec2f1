"""Parts of training: the loader's class, orders, mixtures, packing, the plan of an epoch."""

from typing import TYPE_CHECKING, Any

from lading._core.train.images import (
    aspect_buckets,
    images,
)
from lading._core.train.loader import (
    Loader,
)
from lading._core.train.metrics import (
    Metrics,
)
from lading._core.train.mixture import (
    Mixture,
)
from lading._core.train.order import (
    Shuffle,
)
from lading._core.train.packing import (
    Packer,
)
from lading._core.train.plan import (
    Plan,
    PlannedBucket,
    plan,
)
from lading._core.train.skipped import (
    SkippedSample,
)
from lading._core.train.sounds import (
    sound,
)
from lading._core.train.videos import (
    frames,
)

if TYPE_CHECKING:
    from lading._core.train.torch_dataset import (
        TorchBatches,
    )

__all__ = [
    "Loader",
    "Metrics",
    "Mixture",
    "Packer",
    "Plan",
    "PlannedBucket",
    "Shuffle",
    "SkippedSample",
    "TorchBatches",
    "aspect_buckets",
    "frames",
    "images",
    "plan",
    "sound",
]


def __getattr__(name: str) -> Any:
    if name == "TorchBatches":  # the only name here that needs PyTorch
        from lading._core.train.torch_dataset import TorchBatches

        return TorchBatches
    raise AttributeError(f"module 'lading.train' has no attribute {name!r}")
