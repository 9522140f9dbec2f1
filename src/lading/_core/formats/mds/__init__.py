"""MosaicML Streaming: MDS shards and their JSON Lines, CSV and XSV variants."""
