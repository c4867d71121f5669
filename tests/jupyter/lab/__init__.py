"""A package, so that fixtures of its scope end when a worker leaves it: Chromium has to."""
