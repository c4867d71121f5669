"""The policy: what cells may say and what their process may do, as an operator writes it down.

A policy only narrows on its way down, from operator to notebook to cell (promise P8). Its values
are frozen; whatever is wrong with one is one ``PolicyError`` with file, key, value and remedy.

- ``model``: the fields, each with its row, the rules for ``analysis``, and what a field is worth
  under a backend; ``rows``: what a row says; ``vocabulary``: the words and bounds they use
- ``load``: a preset's name or a TOML file to a policy; ``schema``: what checks an operator's file
- ``paths``, ``folders``: placeholders and relative paths to places on this machine, and names that
  are never read
- ``network``, ``operations``, ``mcp_servers``: hosts and URLs that a policy names; ``[ops]`` and
  ``packages``; ``[mcp]``
- ``devices``: how devices are named, and which no policy grants
- ``credentials``, ``headers``: keys that the host adds to requests, and in which headers
- ``narrowing``, ``narrow_requests``: a narrower policy, and what cells and notebooks ask for;
  ``difference``: where one of two policies lets cells do more, or less
- ``edit``: lines that are added to a policy's file

Imports ``analysis``, ``descriptors`` and ``errors``. Importing this package imports nothing:
start-up is measured.
"""
