"""A page of JupyterLab that is attacked, and the traces that attacks leave.

``hit.NAME()`` in an attack's script runs ``fire`` below, which does what an attacker would: it
connects to the listener in several ways, and opens a terminal on the server with the page's token.
"""

import json
from collections import defaultdict

from support.listener import ADDRESS

ARMED = """ports => {
    const fire = name => {
        (window.fired ??= []).push(name);
        try { if (top !== window) (top.fired ??= []).push(name); } catch {}
        const url = `http://ADDRESS:${ports[name]}/fired`;
        const ways = [
            () => fetch(url, {mode: 'no-cors'}),
            () => { new Image().src = url; },
            () => navigator.sendBeacon(url, 'x'),
            () => new WebSocket(url.replace('http', 'ws')),
            () => {
                const config = document.getElementById('jupyter-config-data').textContent;
                const headers = {Authorization: 'token ' + JSON.parse(config).token};
                fetch('/api/terminals', {method: 'POST', headers, body: JSON.stringify({name})});
            },
        ];
        for (const way of ways) try { Promise.resolve(way()).catch(() => {}); } catch {}
    };
    window.hit = new Proxy({}, {get: (_, name) => () => fire(name)});
}"""

#: Cells whose output is drawn, and takes the pointer, outside of its own output area. Only what
#: reaches beyond its area is looked at: asking what is at a point takes milliseconds.
COVERS = """() => {
    const frame = document.querySelector('.jp-WindowedPanel-outer').getBoundingClientRect();
    const inside = (x, y, box) =>
        x >= box.left - 1 && x <= box.right + 1 && y >= box.top - 1 && y <= box.bottom + 1;
    const reaches = (node, box) => {
        const own = node.getBoundingClientRect();
        return own.width * own.height > 0 && (own.left < box.left - 2 || own.top < box.top - 2
            || own.right > box.right + 2 || own.bottom > box.bottom + 2);
    };
    const at = (x, y) => {
        let node = document.elementFromPoint(x, y);
        while (node && node.getRootNode() instanceof ShadowRoot) node = node.getRootNode().host;
        return node;
    };
    const covers = (area, node) => {
        const box = area.getBoundingClientRect(), own = node.getBoundingClientRect();
        const left = Math.max(own.left, 0), right = Math.min(own.right, innerWidth);
        const top = Math.max(own.top, 0), bottom = Math.min(own.bottom, innerHeight);
        for (let i = 1; i < 8; i++) for (let j = 1; j < 8; j++) {
            const x = left + (right - left) * i / 8, y = top + (bottom - top) * j / 8;
            if (inside(x, y, box) && inside(x, y, frame)) continue;
            if (area.contains(at(x, y))) return true;
        }
        return false;
    };
    const found = [];
    [...document.querySelectorAll('.jp-NotebookPanel .jp-Cell')].forEach((cell, index) => {
        const area = cell.querySelector('.jp-OutputArea');
        if (!area) return;
        const box = area.getBoundingClientRect();
        const nodes = [...area.querySelectorAll('*')].filter(node => reaches(node, box));
        if (!nodes.length) return;
        cell.scrollIntoView({block: 'center'});
        if (nodes.slice(0, 6).some(node => covers(area, node))) found.push(index);
    });
    return found;
}"""

#: Does to everything in the outputs that could answer what a reader's pointer and keys would.
#: Real clicks take JupyterLab half a second each: those are for what is out of a script's reach.
TOUCH = """() => {
    const wanted = 'a, area, button, details, iframe, input, label, marquee, select, summary, svg,'
        + 'textarea, [tabindex], [contenteditable], [title], [class], [data-commandlinker-command]';
    const over = ['pointerover', 'pointerenter', 'mouseover', 'mouseenter', 'mousemove'];
    const press = ['pointerdown', 'mousedown', 'pointerup', 'mouseup'];
    const fire = (node, names, kind) => names.forEach(
        name => node.dispatchEvent(new kind(name, {bubbles: true, cancelable: true})));
    window.frames_ = [];
    for (const area of document.querySelectorAll('.jp-OutputArea-output')) {
        for (const node of [...area.querySelectorAll(wanted)].slice(0, 40)) {
            if (node.tagName === 'IFRAME') window.frames_.push(node);
            fire(node, over, MouseEvent);
            fire(node, press, MouseEvent);
            node.focus?.({preventScroll: true});
            fire(node, ['keydown', 'keyup'], KeyboardEvent);
            fire(node, ['click'], MouseEvent);
        }
    }
    return window.frames_.length;
}"""

FIRED = "() => { const fired = window.fired ?? []; window.fired = []; return fired; }"

LINKED = "() => [...document.querySelectorAll('.jp-OutputArea-output a')].map(a => a.href)"

PLACE = """number => {
    const node = window.frames_[number];
    node.scrollIntoView({block: 'center'});
    const cells = [...document.querySelectorAll('.jp-NotebookPanel .jp-Cell')];
    const box = node.getBoundingClientRect();
    return [cells.indexOf(node.closest('.jp-Cell')), box.left, box.top, box.width, box.height];
}"""


class Watched:
    """What happens on one page; ``seen`` maps an attack's name to the kinds of evidence.

    A page that ``stays`` is left by no link.
    """

    def __init__(self, page, listener, names, *, stays=True):
        self.page, self.listener, self.names = page, listener, names
        self.seen = defaultdict(set)
        self.opened = []
        self.linked = []
        self.at = "?"
        page.on("dialog", self._dialog)
        page.on("download", lambda _: self.seen[self.at].add("download"))
        if stays:
            page.on("framenavigated", self._navigated)
        page.context.on("page", self._opened)

    def arm(self):
        """Give scripts of this page, and of all its frames, their ``hit``."""
        self.page.add_init_script(
            f"({ARMED.replace('ADDRESS', ADDRESS)})({json.dumps(self.listener.ports)})"
        )

    def _dialog(self, dialog):
        self.seen[dialog.message if dialog.message in self.names else self.at].add("dialog")
        dialog.dismiss()

    def _navigated(self, frame):
        if frame == self.page.main_frame and "/doc/tree/" not in frame.url:
            self.seen[self.at].add(f"navigation to {frame.url}"[:80])

    def _opened(self, page):
        self.opened.append(page)

    def touch(self, cells):
        """Do what a reader's pointer and keys would; take note of all that comes of it."""
        self.interact(cells)
        self.settle()
        for page in self.opened:
            page.close()
        self.opened.clear()
        self.collect(links=True)

    def settle(self, seconds=1.2):
        """Let what was set going happen."""
        self.page.wait_for_timeout(seconds * 1_000)

    def collect(self, *, links=False):
        """Take note of scripts that ran and contacts made.

        ``links`` lets a link's target be visited, as it is by a click: by the whole page, from
        an opener that it is not told.
        """
        for name in self.page.evaluate(FIRED):
            self.seen[name].add("script")
        for contact in self.listener.take():
            if not (links and self._led_to(contact)):
                kind = {"udp": "datagram", "": "connection"}.get(contact.path, "request")
                self.seen[contact.name].add(kind)
        title = self.page.title()
        for name in self.names:
            if name in title:
                self.seen[name].add("title")

    def _led_to(self, contact):
        """Tell whether a contact is due to a link that was pressed.

        Its page may be closed before it asks for anything.
        """
        linked = any(f":{self.listener.ports[contact.name]}/" in link for link in self.linked)
        return linked and (is_visit(contact) or not contact.path)

    def covers(self, cells):
        """Take note of outputs outside of their place; ``cells`` has the attack of each cell."""
        for index in self.page.evaluate(COVERS):
            self.seen[cells[index]].add("cover")

    def interact(self, cells):
        """Hover over, press and focus what is in the outputs, and click into every frame."""
        self.at = "touch"
        self.linked = self.page.evaluate(LINKED)
        for number in range(self.page.evaluate(TOUCH)):
            index, left, top, width, height = self.page.evaluate(PLACE, number)
            self.at = cells[index]
            if width and height:
                self.page.mouse.click(left + min(width / 2, 40), top + min(height / 2, 20))
        self.at = "keyboard"
        for _ in range(40):
            self.page.keyboard.press("Tab")
        self.at = "?"


def is_visit(contact):
    """Tell whether a contact is a page that a link opened: it learns whence, and not of what."""
    headers = contact.headers.lower()
    referer = headers.partition("referer: ")[2].partition("\r\n")[0]
    return "sec-fetch-dest: document" in headers and referer.count("/") <= 3


def terminals(lab):
    """Return the names of the server's terminals."""
    return {terminal["name"] for terminal in lab.get("/api/terminals")}
