"""Admission: only cells that were approved run, where a policy says so.

``manifest`` is the signed list of approved cells, with the user's key; ``approve`` writes one;
``admission`` decides for a cell; ``schema`` validates values that templates take.

Invariant: what is read here counts only if the user's key vouches for it (manifests), or if it
lies where the operator said and nobody else can write (templates). Whatever is missing, damaged,
older than it was, or somebody else's, is an ``AdmissionError``, and nothing that takes it runs.
"""
