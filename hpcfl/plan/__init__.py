"""`hpcfl plan` and `hpcfl data show`: what a run will need and how its data is split, without training."""
