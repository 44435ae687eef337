"""Colours of figures and pages, told apart by colour-blind readers too; those of labels stand in their own files."""

# Okabe and Ito's palette, without black, then Tol's "muted": both are safe for all common kinds of colour blindness.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#F0E442")
MORE_COLOURS = ("#332288", "#88CCEE", "#44AA99", "#999933", "#882255", "#AA4499", "#DDCC77", "#117733")
GREY = "#8A8A8A"
PALE = "#ECECEC"
# Colour scales, by their names in matplotlib.
SEQUENTIAL, DIVERGING, ATTENTION = "viridis", "PuOr_r", "Blues"
