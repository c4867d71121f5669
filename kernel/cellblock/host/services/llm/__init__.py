"""Language models for cells: asked by the host, with a key that no cell has.

``provider`` says what cells see and may ask, judges a call, and counts what it costs a session.
``client`` asks, in a worker of its own, and reads what comes back, which is as hostile as what a
cell says.
"""
