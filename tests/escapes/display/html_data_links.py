"""Documents carried in a link."""

html(f"<a href='data:text/html,<script>top.{JS}</script>'>x</a> <a download href='data:text/html,x'>y</a> <a href='data:image/svg+xml,<svg/>'>z</a>")
