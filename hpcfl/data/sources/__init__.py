"""Sources of raw datasets, one file per family, read by torchvision; only `hpcfl data prepare` uses them."""
