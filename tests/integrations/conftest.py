"""Folders of its own for what the frameworks' sandboxes write."""

from api.conftest import home

__all__ = ["home"]
