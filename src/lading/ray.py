"""Datasets from and to Ray Data (`lading[ray]`)."""

from lading._core.jobs.ray.sink import (
    write_ray,
)
from lading._core.jobs.ray.source import (
    to_ray,
)

__all__ = [
    "to_ray",
    "write_ray",
]
