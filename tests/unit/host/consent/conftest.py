"""Approvals of a user of the test's own."""

import dataclasses

import nbformat
import pytest

from cellblock.host.consent import review
from cellblock.host.consent.store import of_cells
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
        self.place = of_cells(self.policy, self.project)

    def notebook(self, *sources, name="a.ipynb", folder=None):
        """Write a notebook of code cells."""
        cells = [nbformat.v4.new_code_cell(source) for source in sources]
        path = (folder or self.project) / name
        nbformat.write(nbformat.v4.new_notebook(cells=cells), path)
        return path

    def approve(self, *sources, name="a.ipynb"):
        """Approve a notebook of these cells; return its path."""
        path = self.notebook(*sources, name=name)
        reviewed = review.review(self.place, self.policy, name, dict(enumerate(sources, 1)))
        review.approve(self.place, self.policy, reviewed)
        return path


@pytest.fixture
def desk(tmp_path):
    return Desk(tmp_path)
