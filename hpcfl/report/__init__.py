"""Tables about finished and running logs."""
