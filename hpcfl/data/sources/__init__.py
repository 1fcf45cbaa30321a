"""Where images come from: one file per family, read by torchvision; only `hpcfl data prepare` comes here."""
