"""Handlers that need nobody: load, toggle, animation, focus, pageshow."""

html(f"<svg onload={JS}></svg><details open ontoggle={JS}>x</details><input autofocus onfocus={JS}><body onpageshow={JS} onload={JS}><marquee onstart={JS}>x</marquee><video onloadstart={JS}><source></video><style>@keyframes k{{}}</style><b style='animation:k 1s' onanimationstart={JS}>x</b>")
