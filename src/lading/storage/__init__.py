"""Where files live: local disk, memory, anything that fsspec opens; and stores around stores."""
