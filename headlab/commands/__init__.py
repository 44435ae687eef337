"""Each command as a request and a function: `sweep.run(sweep.SweepRequest(model=..., task=...), out)`; no printing."""
