"""`hpcfl doctor`: information that every rank collects, and checks that depend on it alone."""
