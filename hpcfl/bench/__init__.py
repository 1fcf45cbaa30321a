"""How fast this machine is, and how much of that a run gets."""
