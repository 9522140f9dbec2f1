"""Arguments that loaders of other libraries have, and what `lading.loader` has in their place."""

from __future__ import annotations

from typing import Final

__all__ = ["OF_OTHERS"]

OF_OTHERS: Final = {
    "num_workers": "Threads decode, one a core; workers=N makes batches in N processes.",
    "drop_last": 'Write last="drop", or last="pad" for whole batches without loss.',
    "pin_memory": "Pin in batch_transform=, which is given every batch: batch['jpg'].pin_memory().",
    "collate_fn": "Write collate=FUNCTION: it is given the list of samples.",
    "persistent_workers": "Workers stay from epoch to epoch: leave it out.",
    "prefetch_factor": 'Write ahead_bytes="1GB": so much is read ahead of the loop.',
    "generator": "Write seed=N: it decides the order, and rng of transform=.",
    "worker_init_fn": "Functions get a seeded rng: transform=lambda sample, rng: ….",
    "multiprocessing_context": "Write workers=N: the processes need no context.",
    "sampler": "Write shuffle=True, weights='COLUMN', or choose samples: ds[numbers], ds.sort(…). "
    "DataLoader(ds, sampler=…) takes one.",
    "batch_sampler": "For batches by size write batch_tokens= and bucket_by=. DataLoader(ds, batch_sampler=…) takes "
    "one; its state does not move to other ranks.",
    "replacement": "Write weights='COLUMN': samples are drawn with replacement, by their weights.",
    "num_samples": "Write epoch_size=N.",
    "repeats": "Mix datasets: lading.loader(lading.mix({'a': ds_a, 'b': ds_b}, repeats={'a': 4}), …).",
    "temperature": "Mix datasets: lading.loader(lading.mix({'a': ds_a, 'b': ds_b}, temperature=2), …).",
    "group_by_length": 'Write bucket_by="len(txt)" with batch_size= or batch_tokens=.',
    "length_column_name": 'Write length="COLUMN" with batch_tokens=, or bucket_by="COLUMN" with batch_size=.',
    "max_tokens": 'Write batch_tokens=N with bucket_by="len(txt)" or length=.',
    "max_sentences": "Write batch_size=N.",
    "max_duration": 'Write batch_tokens=SECONDS with bucket_by="flac.duration_s".',
    "num_buckets": "Write max_padding=0.1: so much of a batch is padding, at most.",
    "bucket_boundaries": "Write max_padding=0.1: so much of a batch is padding, at most.",
    "bucket_batch_sizes": "Write batch_tokens=N: each size has as many samples a batch as fit.",
    "resolutions": "Write image_size=[(height, width), …].",
    "dataset": "Give it first, as the source.",
    "shuffle_seed": "Write seed=N.",
    "predownload": 'Write ahead_bytes="1GB": so much is read ahead of the loop.',
    "handler": 'Write on_error="skip": loader.skipped lists the samples that were replaced.',
    "resize": 'Write image_size=(height, width), and fit="crop" or fit="pad" to keep proportions.',
    "center_crop": 'Write image_size=224, fit="crop".',
    "random_crop": 'Write decode={"jpg": lading.train.images(224, random_crop=(0.08, 1))}.',
    "flip": 'Write decode={"jpg": lading.train.images(224, flip=0.5)}.',
    "epochs": "A loop over the loader is one epoch.",
    "num_epochs": "A loop over the loader is one epoch.",
    "epoch": "Call loader.set_epoch(N) before the loop.",
    "log_every_n_steps": "Write log_every=N.",
    "device": "Move batches in the loop: batch['jpg'].to(device).",
}
"""Arguments of loaders of PyTorch, MosaicML Streaming and webdataset."""
