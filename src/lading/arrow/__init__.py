"""Arrow shard caches: a generator of rows becomes a folder of Arrow files, once, that every later run maps.

The layout is that of stable-datasets, so that either opens what the other built (`docs/arrow-caches.md`).
"""

from lading.arrow.cache import cache_fingerprint, write_cache
from lading.arrow.layout import Features, fingerprint
from lading.arrow.meta import CacheMeta, read_cache_meta
from lading.arrow.rows import encode_example
from lading.arrow.shard import read_shard, validate_cache

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
