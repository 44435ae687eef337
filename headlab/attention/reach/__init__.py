"""Get hold of a model's attention while it runs, block by block, and of what its heads hand on."""
