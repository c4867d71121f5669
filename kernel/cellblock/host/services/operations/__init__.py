"""Operations: what the host does for cells itself, each within what its section of a policy grants.

``catalog`` says how cells see them and what a policy lets them touch. They run in a worker of their
own, apart from the operator's tools (``functions``): ``files``, ``http`` (``urls`` judges
addresses), ``packages`` (``package_store`` keeps them). ``provider`` is the host's end.
"""
