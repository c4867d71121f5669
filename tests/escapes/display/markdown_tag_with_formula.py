"""The same in an attribute of a tag that is let through."""

markdown(f"""<b title="$" onmouseover="{JS}" x="$">hover</b> <b title='$" onmouseover="{JS}" x="$'>hover</b> <span class="$" style="$">x</span> <b title="@@0@@">y</b>""")
