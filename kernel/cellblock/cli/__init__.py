"""The command line of people and CI: a command's module is loaded when the command is given.

Kernelspecs start ``python -m cellblock`` instead. A command turns options into calls of ``batch``,
``jupyter``, ``backends`` and ``host``, and prints what comes back: it decides nothing. What a
notebook or a log says is printed without control characters. Exit status 2 says that the command
could not be carried out.

``main`` is the program and the table of its commands, ``common`` what they share. May import all
that is below; nothing imports it.
"""
