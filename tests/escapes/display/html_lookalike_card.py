"""A card that looks like the host's, with a button."""

html(f"<div role=group aria-label='cellblock did not run this cell' class='jp-RenderedHTMLCommon'><b>cellblock</b> needs your approval <button onclick={JS}>Allow</button></div>")
