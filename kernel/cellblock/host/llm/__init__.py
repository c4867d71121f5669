"""Language models for cells: asked by the host, with a key that no cell has.

``offer`` is what cells see, ``asked`` what they may say, ``ledger`` what it may cost a session.
``provider`` judges and counts. In a worker of its own ``endpoint`` asks by openai's ``client``;
``reading``, ``failures`` and ``redaction`` are for what comes back, which is as hostile as what a
cell says.
"""
