"""Operations: what the host does for cells itself, each within what its section of a policy grants.

``catalog`` says how cells see them, ``ground`` makes of a policy what they may touch, ``beyond``
tells from a call's spelling that it is not granted. They run in a worker of their own, apart from
the operator's tools (``functions``): ``files`` (``beneath``), ``fetch`` (``urls``, ``addresses``,
``pinned``, ``bodies``), ``install`` (``wheels``, ``shelf``). ``provider`` is the host's end of it.
"""
