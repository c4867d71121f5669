"""Approvals of a user of the test's own."""

import dataclasses

import nbformat
import pytest

from cellblock.host.consent import manifest as approving
from cellblock.host.consent.manifest import ManifestLocation
from cellblock.policy.model import Policy


class Desk:
    """A folder of notebooks, and what is kept of approvals."""

    def __init__(self, root):
        self.project = root / "project"
        self.project.mkdir()
        self.data = root / "data"
        own = {"folder": str(self.data / "approved"), "key": str(self.data / "approval.key")}
        approval = dataclasses.replace(Policy().approval, **own)
        self.policy = Policy(name="lab", admission="approved", approval=approval)
        self.place = ManifestLocation(self.policy, self.project)

    def notebook(self, *sources, name="a.ipynb", folder=None):
        """Write a notebook of code cells."""
        cells = [nbformat.v4.new_code_cell(source) for source in sources]
        path = (folder or self.project) / name
        nbformat.write(nbformat.v4.new_notebook(cells=cells), path)
        return path

    def approve(self, *sources, name="a.ipynb"):
        """Approve a notebook of these cells; return its path."""
        path = self.notebook(*sources, name=name)
        manifest, _ = approving.known(self.place)
        reviewed = approving.review(name, dict(enumerate(sources, 1)), self.policy, manifest)
        approving.approve(self.place, self.policy, reviewed, manifest)
        return path


@pytest.fixture
def desk(tmp_path):
    return Desk(tmp_path)
