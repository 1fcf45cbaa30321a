"""`hpcfl bench`: speed of training, exchange and refinement on this machine."""
