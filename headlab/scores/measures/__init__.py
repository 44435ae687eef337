"""What scores are made of: losses under masks, gradients, searches."""
