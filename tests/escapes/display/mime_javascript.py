"""application/javascript, which JupyterLab evaluates."""

show('application/javascript', TERMINAL)
