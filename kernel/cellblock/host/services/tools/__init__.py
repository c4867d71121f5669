"""Tools: the operator's functions, which cells call.

``session_tools`` are what one session offers; ``broker`` judges each call and keeps account of it;
``registry`` reads the operator's functions and validates a call's arguments against their
signatures, in the ``worker``: a process of its own, which may hang, crash and be killed without
the host (``worker_pool`` starts it, ``protocol`` is what is said to it, ``calls`` are those that
run). Functions of a program that has a sandbox run in that program (``in_process``). ``types`` is
what all of these share; ``results`` cleans what comes back. Operations and calls of language models
come by the same way.
"""
