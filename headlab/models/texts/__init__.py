"""What a model reads: texts as tokens, words and batches."""
