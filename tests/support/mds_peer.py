"""mosaicml-streaming in a process of its own: `python mds_peer.py read|write SPEC`, a pickle in, a pickle out.

The peer imports torchvision and transformers for datasets that nobody here opens.
"""

from __future__ import annotations

import pickle
import sys
from pathlib import Path

from stand_ins import stand_in


def main() -> None:
    stand_in("torchvision", "transformers")
    from streaming import CSVWriter, JSONWriter, MDSWriter, StreamingDataset, TSVWriter, XSVWriter

    writers = {"mds": MDSWriter, "json": JSONWriter, "csv": CSVWriter, "tsv": TSVWriter, "xsv": XSVWriter}
    verb, spec = sys.argv[1], pickle.loads(Path(sys.argv[2]).read_bytes())
    if verb == "write":
        for job in spec:
            with writers[job.get("kind", "mds")](out=job["out"], columns=job["columns"], **job["options"]) as writer:
                for row in job["rows"]:
                    writer.write(row)
        return
    found = []
    for folder in spec:
        dataset = StreamingDataset(local=folder, batch_size=1, validate_hash=None)
        found.append([dataset[i] for i in range(len(dataset))])
    Path(sys.argv[2]).write_bytes(pickle.dumps(found))


if __name__ == "__main__":
    main()
