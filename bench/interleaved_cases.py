"""Interleaved documents from one format into another, in one process, one shard of input to one of output."""

from __future__ import annotations

import os
from collections.abc import Callable

from harness import Case, Done, Place, Way, copy_files


def _by_nemo(source: str, target: str) -> Way:
    """NeMo Curator's stages, called shard by shard as one of its workers would, without Ray."""

    def way(place: Place) -> Callable[[], Done]:
        from nemo_curator.stages.interleaved.io import readers, writers
        from nemo_curator.tasks import FileGroupTask

        if source == "tar":
            read = readers.InterleavedWebdatasetReaderStage(materialize_on_read=True)
        else:
            read = readers.InterleavedParquetReaderStage()
        kind = "InterleavedParquetWriterStage" if target == "parquet" else "InterleavedWebdatasetWriterStage"
        write = getattr(writers, kind)(path=os.path.join(place.out, "new"), mode="overwrite", materialize_on_write=True)
        paths, done = place.files(f"documents/*.{source}"), _done(place)

        def work() -> Done:
            for path in paths:
                write.process(read.process(FileGroupTask(dataset_name="documents", data=[path])))
            return done

        return work

    return way


def _by_lading(source: str, target: str) -> Way:
    def way(place: Place) -> Callable[[], Done]:
        import lading

        paths, done = place.files(f"documents/*.{source}"), _done(place)
        format_ = "parquet" if target == "parquet" else "webdataset"

        def work() -> Done:
            lading.convert(paths, os.path.join(place.out, "new"), format=format_)
            return done

        return work

    return way


def _copy(source: str) -> Way:
    def way(place: Place) -> Callable[[], Done]:
        paths, done = place.files(f"documents/*.{source}"), _done(place)

        def work() -> Done:
            copy_files(paths, place.out)
            return done

        return work

    return way


def _done(place: Place) -> Done:
    facts = place.facts("documents")
    return Done(facts["samples"], facts["payload_bytes"])


def _case(source: str, target: str) -> Case:
    ways = {"nemo-curator": _by_nemo(source, target), "lading": _by_lading(source, target), "copy": _copy(source)}
    name = f"documents {source} to {target}"
    return Case(name, f"documents/*.{source}", peer="nemo-curator", limit="copy", ways=ways, writes=True)


CASES = (_case("tar", "parquet"), _case("parquet", "tar"), _case("tar", "tar"), _case("parquet", "parquet"))
