"""FRONT: many notebooks and scripts at once. ``check`` judges their source and runs none of it.

What stands in a file is hostile: it is read in a process that has little time and memory, and
nothing of it is printed as it is.
"""
