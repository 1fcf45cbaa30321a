"""`hpcfl doctor`: facts that every rank gathers, and checks that are functions of these facts alone."""
