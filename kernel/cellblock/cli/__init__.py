"""The command line: one module a group of commands, each imported when it is asked for.

``main`` has the program, ``doctor`` and ``policy``; ``run``, ``check``, ``audit`` and ``approve``
(with ``packages``) are the rest. What a command prints is for people; files and JSON are for
programs.
"""
