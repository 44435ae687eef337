"""From tables to what people look at: figures, and one self-contained HTML page. Needs no model and no torch."""
