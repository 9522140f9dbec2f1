"""Datasets from and to Ray Data (`lading[ray]`)."""

from lading._core.jobs.ray_sink import (
    write_ray,
)
from lading._core.jobs.ray_source import (
    to_ray,
)

__all__ = [
    "to_ray",
    "write_ray",
]
