"""MosaicML Streaming: MDS shards and the JSON Lines, CSV and XSV siblings."""
