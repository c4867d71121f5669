"""TRUSTED side of admission: manifests of what was approved, their key, and shipped templates.

Invariant: what is read here counts only if the user's key vouches for it (manifests), or if it
lies where the operator said and nobody else can write (templates). Whatever is missing, damaged,
older than it was, or somebody else's, is an ``AdmissionError``, and nothing that takes it runs.
"""
