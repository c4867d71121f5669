"""An exception that can't say what it is."""

class Silent(Exception):
    def __str__(self): raise ValueError(f"\x1b]0;{NAME}\x07<script>{JS}</script>")
    __repr__ = __str__
publish("error", {"ename": "\x1b]0;x\x07", "evalue": "", "traceback": []})
raise Silent
