"""Steps over numbers: the numbers of the samples that remain, and samples read in any order."""
