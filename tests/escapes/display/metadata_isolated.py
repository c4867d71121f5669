"""JupyterLab's isolated frame is of the page's own origin."""

show("text/html", f"<script>top.{JS};parent.{JS}</script><img src=x onerror='top.{JS}'>", isolated=True)
