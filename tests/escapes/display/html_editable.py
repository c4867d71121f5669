"""Text that takes the keyboard."""

html(f"<p contenteditable autofocus spellcheck onfocus={JS} enterkeyhint=send>type here</p><p contenteditable=plaintext-only accesskey=s onclick={JS}>x</p><p tabindex=1 inert draggable=true ondragstart={JS}>y</p>")
