c = get_config()  # noqa: F821  # Jupyter gives it
c.ServerApp.kernel_spec_manager_class = "cellblock.jupyter.only.OnlyCellblock"
# A terminal would run programs outside of the policy.
c.ServerApp.terminals_enabled = False
