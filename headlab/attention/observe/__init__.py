"""Read attention: blocks, statistics, words, sums over texts."""
