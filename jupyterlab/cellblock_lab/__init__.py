"""The JupyterLab extension of cellblock: scripts and styles, which JupyterLab loads by itself."""

from cellblock_lab._version import __version__

__all__ = ["__version__"]


def _jupyter_labextension_paths() -> list[dict[str, str]]:
    return [{"src": "labextension", "dest": "cellblock-lab"}]
