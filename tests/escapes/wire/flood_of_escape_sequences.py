# text that costs the most to clean
# ends: any
flood(text("\x1b]0;x\x07\x1b[31m\r" * 4000))
