"""The command line, for people and CI. Kernelspecs start ``python -m cellblock`` instead.

A command turns its options into calls of ``batch``, ``jupyter``, ``backends`` and ``host``, and
prints the results: it decides nothing. Text of notebooks and logs is printed without control
characters. Exit status 2 means that the command could not be carried out.

``main`` is the program and the table of its commands, and loads a command's module when the command
is given. ``common`` has the options and the printing that commands share. The docstring of a
command is its help text. This package may import everything below it; nothing imports it.
"""
