"""A script by its address, classic and module."""

html(f"<script src={URL}></script><script type=module src={URL}></script>")
