"""`hpcfl watch`: shows a running job from any machine that can read its log."""
