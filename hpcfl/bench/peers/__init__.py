"""`hpcfl bench peers`: the same task by hpcfl and by other simulators, in turn."""
