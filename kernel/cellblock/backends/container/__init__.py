"""Containers: what an engine is told, the processes that start one and end it, and its image.

Invariant: whatever starts is labelled with who started it, and nothing that is needed to end it is
known to the one that is to be ended alone.
"""
