"""A small real dataset, two shards of 13 documents, for `lading demo` and for trying things out.

`NOTICE.md` names its source and licence.
"""
