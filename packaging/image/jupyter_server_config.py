"""What the image's Jupyter server offers: cellblock's kernels, in a folder of the user's."""

from pathlib import Path

c = get_config()  # noqa: F821  # Jupyter gives it
c.ServerApp.kernel_spec_manager_class = "cellblock.jupyter.only.OnlyCellblock"
# A terminal would run programs outside of the policy.
c.ServerApp.terminals_enabled = False
# Not the home folder itself: there, cells read nothing but what lies beside the notebook.
root = Path.home() / "work"
root.mkdir(exist_ok=True)
c.ServerApp.root_dir = str(root)
