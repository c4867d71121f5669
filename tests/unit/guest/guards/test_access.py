"""What a settled name is settled by."""

import os

import pytest

from cellblock.analysis.attributes import SETTLED
from cellblock.guest.guards import access, stdlib


def test_every_name_that_is_settled_has_what_settles_it():
    assert access._SETTLERS.keys() == SETTLED


def test_a_traceback_looks_up_loaded_modules_by_plain_text_alone():
    class Name(str):
        __slots__ = ()

    assert stdlib._import_loaded("os") is os
    for name in (Name("os"), b"os", "antigravity"):
        with pytest.raises(ImportError):
            stdlib._import_loaded(name)
