"""Files that cells leave for their users: found after a cell, and copied to a folder of the host's.

Invariant: whatever a cell puts there is hostile. No link is followed, nothing but a regular file
with one name is read, what is read and written is bounded, and names are made harmless before they
are used or shown. ``collect`` finds and copies them, ``store`` is the folder of the host's.
"""
