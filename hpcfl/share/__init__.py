"""Configurations, studies and job scripts that come with hpcfl, and how they are found by name."""
