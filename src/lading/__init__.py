"""Sharded multimodal training data: open anything, convert anything to anything, prove that nothing was lost."""
