"""Types that an extension may render."""

for mime in ("application/vnd.anywidget+json", "application/vnd.jupyter.es6-rich-output", "application/vnd.nteract.view+json",
             "application/vnd.code.notebook.error", "application/vnd.streamlit+json",
             "application/vnd.react+json", "application/vnd.hex.chart+json", "x-application/dash-error"):
    show(mime, {"_esm": JS, "url": URL, "html": f"<script>{JS}</script>"})
