"""What a run will need and how its data is split, without training."""
