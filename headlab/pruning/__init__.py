"""Which heads can go: orderings, budgets, sweeps and their intervals."""
