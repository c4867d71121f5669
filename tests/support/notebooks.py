"""Notebooks for tests, as front ends write them."""

import json


def notebook(*cells, **fields):
    """Return the text of a notebook of format 4; each cell is a source, or (type, source)."""
    made = [cell(*entry) if isinstance(entry, tuple) else cell("code", entry) for entry in cells]
    shape = {"cells": made, "metadata": {}, "nbformat": 4, "nbformat_minor": 5}
    return json.dumps(shape | fields, indent=1) + "\n"


def cell(kind, source):
    """Return a cell with its source in lines."""
    made = {"cell_type": kind, "id": "a", "metadata": {}, "source": source.splitlines(True)}
    return made | ({"execution_count": None, "outputs": []} if kind == "code" else {})
