"""A box over the page."""

markdown("""<div style="position:fixed;inset:0;z-index:9999;background:#fff">x</div>

<style>*{position:fixed}</style>

<dialog open>x</dialog>
""")
