"""Arrow shard caches: a generator of rows becomes a folder of Arrow files once, and later runs map them.

The layout is that of stable-datasets, so each opens the other's caches (`docs/arrow-caches.md`).
"""

from lading._core.caches.layout import (
    Features,
    fingerprint,
)
from lading._core.caches.meta import (
    CacheMeta,
    read_cache_meta,
)
from lading._core.caches.rows import (
    encode_example,
)
from lading._core.caches.shard import (
    read_shard,
    validate_cache,
)
from lading._core.caches.writer import (
    cache_fingerprint,
    write_cache,
)

__all__ = [
    "CacheMeta",
    "Features",
    "cache_fingerprint",
    "encode_example",
    "fingerprint",
    "read_cache_meta",
    "read_shard",
    "validate_cache",
    "write_cache",
]
