"""Reports about runs and studies: show, diff, verdict, tables, figures and page."""
