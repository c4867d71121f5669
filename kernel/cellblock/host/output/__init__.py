"""TRUSTED: the output gateway. Nothing from the guest reaches the front end around it (P4).

Invariant: what leaves here is JSON that can always be encoded as UTF-8, within its bounds, of
mime types the table knows, and free of terminal sequences that do more than colour or redraw
the current line. No function here raises, whatever the guest sent.
"""
