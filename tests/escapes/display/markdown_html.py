"""Raw HTML: scripts, handlers, frames."""

markdown(f"""text

<script>{JS}</script>

<img src=x onerror="{TERMINAL}">

<iframe srcdoc='<script>top.{JS}</script>'></iframe>

inline <svg onload={JS}></svg> <details open ontoggle={JS}>x</details>""")
