"""The verbs of an index: they build, change, check, search and serve it."""
