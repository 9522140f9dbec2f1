"""Feed training: the order of samples, ranks, exact resume, the loader, mixing and packing."""
