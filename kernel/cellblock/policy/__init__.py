"""The policy: what source cells may contain and what their process may do.

An operator writes it; notebooks and cells can only narrow it (promise P8). Its values are frozen.
Each thing that is wrong with a policy is a ``PolicyError`` with file, key, value and remedy.

- ``model``: the fields, each with its row, the rules for ``analysis``, and the enforcement of a
  field under a backend; ``rows``: the parts of a row; ``vocabulary``: words and bounds of fields
- ``load``: makes a policy of a preset's name or a TOML file; ``schema``: checks an operator's file
- ``paths``, ``folders``: resolve placeholders and relative paths, find files that are denied by
  name, and know cellblock's own folders
- ``network``, ``operations``, ``mcp_servers``: hosts and URLs in a policy; its sections ``[ops]``,
  ``packages`` and ``[mcp]``
- ``devices``: checks how devices are named, and knows which devices no policy grants
- ``credentials``, ``headers``: keys that the host adds to requests, and the headers that have them
- ``narrowing``, ``narrow_requests``: narrow a policy, and read the requests of cells and notebooks;
  ``difference``: the fields in which one of two policies lets cells do more, or less
- ``edit``: adds lines to a policy's file

Imports ``analysis``, ``descriptors`` and ``errors``. Importing this package imports nothing:
start-up is measured.
"""
