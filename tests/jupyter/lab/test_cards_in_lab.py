"""The cards as JupyterLab draws them; shown by the stock kernel, so only drawing is tested."""

import pytest

from cellblock.analysis import Finding
from cellblock.policy.model import Enforcement, Status
from cellblock.render.outcomes import denial
from cellblock.render.policy_card import policy_table

SETUP = """
from types import SimpleNamespace as N
from IPython.display import display
from cellblock.render import cards as b, outcomes as d, outcomes as s, policy_card as g, policy_card as p
def finding(rule, line, column, excerpt, subject, why, remedy):
    return N(rule=rule, line=line, column=column, end_column=column + len(subject),
             excerpt=excerpt, subject=subject, why=why, remedy=remedy, cut=0, detail="", rewrite="",
             allows=('add.allowed_modules = ["os"]',))
FINDINGS = [
    finding("import-not-allowed", 1, 7, "import os, json", "os",
            "reads and changes files, processes and the environment",
            'ask the host, ops.read_file("data/a.csv").'),
    finding("builtin-not-allowed", 4, 7, 'rows = open("data/a.csv").readlines()', "open",
            "opens files", 'ask the host: ops.read_file("data/a.csv").'),
    finding("builtin-not-allowed", 12, 9,
            '    漢字 = open("a.csv"); ' + "long_name = long_name + 1; " * 5, "open",
            "opens files", 'ask the host: ops.read_file("data/a.csv").'),
]
GAPS = [
    N(capability="filesystem_names", status="partial", asked="only names below the roots",
      actual="contents only", remedy="install bubblewrap for a private mount namespace",
      consequence="Landlock hides contents, not names: a cell can learn that a path exists"),
    N(capability="memory_max_bytes", status="unenforced", asked="2 GiB", actual="no limit",
      consequence="a cell can use all memory", remedy="run under a cgroup"),
]
ENFORCED = [
    N(capability="network_access", status="verified", holes=(), evidence="probe",
      mechanism="seccomp: socket() by family, sendto() with an address, io_uring"),
    N(capability="filesystem_read_roots", status="partial", holes=("names", "stat"),
      evidence="probe", mechanism="Landlock ABI 7"),
    N(capability="memory_max_bytes", status="unenforced", holes=(), evidence="", mechanism="none"),
]
VIEW = {"name": "data", "mode": "data", "backend": "landlock", "network_access": False,
        "filesystem_read_roots": ["/home/user/project"], "memory_max_bytes": 2 << 30,
        "timeout": 60.0, "allowed_modules": ["numpy", "pandas"]}
"""
CARDS = [
    "display(d.denial(FINDINGS, policy_name='safe'), raw=True)",
    "display(g.gaps(GAPS, policy_name='data', backend='landlock'), raw=True)",
    "display(p.policy_table(VIEW, ENFORCED, GAPS), raw=True)",
    "display(p.policy_table(VIEW, ENFORCED[:1], []), raw=True)",
    "display(s.stopped('timeout', '60 s', state=s.State.restored, lost=['1 running thread']), raw=True)",
    "display(s.stopped('crashed', 'signal 11', state=s.State.gone), raw=True)",
    (
        "display(b.problem('The policy can not be used', 'unknown key', '/etc/cellblock/cells.toml',"
        " 'memory_max_byte', '2 GiB', 'write memory_max_bytes.'), raw=True)"
    ),
]
ALL = "\n".join([SETUP, *CARDS])

# Returns, for each piece of text in each card, its contrast with what is behind it (WCAG 2.2).
CONTRASTS = """() => {
    const canvas = new OffscreenCanvas(1, 1).getContext('2d', {willReadFrequently: true});
    const rgba = color => {
        canvas.clearRect(0, 0, 1, 1); canvas.fillStyle = color; canvas.fillRect(0, 0, 1, 1);
        const [r, g, b, a] = canvas.getImageData(0, 0, 1, 1).data;
        return [r, g, b, a / 255];
    };
    const over = (top, below) => [0, 1, 2].map(i => top[i] * top[3] + below[i] * (1 - top[3]));
    const behind = node => {
        if (!node) return [255, 255, 255];
        const own = rgba(getComputedStyle(node).backgroundColor);
        return own[3] === 1 ? own.slice(0, 3) : over(own, behind(node.parentElement));
    };
    const light = rgb => {
        const [r, g, b] = rgb.map(v => v / 255).map(
            v => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
        return 0.2126 * r + 0.7152 * g + 0.0722 * b;
    };
    const found = [];
    for (const card of document.querySelectorAll('[role=group][style*="border-left"]')) {
        const walker = document.createTreeWalker(card, NodeFilter.SHOW_TEXT);
        for (let text = walker.nextNode(); text; text = walker.nextNode()) {
            if (!text.data.trim()) continue;
            const element = text.parentElement, back = behind(element);
            const front = over(rgba(getComputedStyle(element).color), back);
            const [a, b] = [light(front), light(back)].sort((x, y) => y - x);
            const decorative = !!element.closest('[aria-hidden]');
            found.push([text.data.trim(), (a + 0.05) / (b + 0.05), decorative]);
        }
    }
    return found;
}"""


TOO_WIDE = """() => [...document.querySelectorAll('.jp-OutputArea [role=group]')]
    .filter(card => card.scrollWidth > card.clientWidth + 1).length"""


def hard_to_read(page, at_least):
    """Return the texts of the page's cards that lack contrast."""
    contrasts = page.evaluate(CONTRASTS)
    assert len(contrasts) > at_least
    return [(text, ratio) for text, ratio, icon in contrasts if ratio < (3 if icon else 4.5)]


def test_every_card_reads_well_in_both_themes_wide_and_narrow(open_notebook):
    view = open_notebook([ALL], kernel="python3", height=2_600)
    view.run(0)
    view.card(0).nth(len(CARDS) - 1).wait_for()
    for theme in ("light", "dark"):
        view.set_theme(theme)
        for width in (1_200, 520):
            view.set_size(width, 2_600)
            view.shot(f"cards-{theme}-{width}")
            assert hard_to_read(view.page, 80) == [], (theme, width)
            assert view.page.evaluate(TOO_WIDE) == 0, (theme, width)
    # Or they would be in the table of contents.
    assert view.card(0).locator("h1,h2,h3,h4,h5,h6").count() == 0


@pytest.mark.parametrize(("page_color", "text_color"), [("#fff", "#000"), ("#1f1f1f", "#ccc")])
def test_a_card_can_be_read_where_there_is_no_theme(browser, page_color, text_color):
    findings = [
        Finding(1, 7, 9, "import-not-allowed", "os", "import os", "reads files", "Ask the host.")
    ]
    html = denial(findings, policy_name="safe")["text/html"]
    page = browser.new_page()
    page.set_content(f"<body style='background:{page_color};color:{text_color}'>{html}")
    poor = hard_to_read(page, 8)
    page.close()
    assert poor == []


def test_no_column_of_a_policy_is_cut_off_in_a_narrow_notebook(browser):
    long = {"filesystem_staged_roots": ["/home/user/project"]}
    how = "an overlay in a mount namespace"
    worth = [Enforcement("filesystem_staged_roots", Status.asserted, how, (), "")]
    html = policy_table({"name": "data"} | long, worth, [])["text/html"]
    page = browser.new_page(viewport={"width": 480, "height": 600})
    page.set_content(html)
    wide = "[...document.querySelectorAll('div')].filter(d => d.scrollWidth > d.clientWidth).length"
    assert page.evaluate(wide) == 0
    page.close()


def test_a_card_in_a_notebook_that_is_not_trusted_still_says_it_all(open_notebook, lab):
    view = open_notebook([SETUP + CARDS[0]], kernel="python3")
    view.run(0)
    view.save()
    saved = view.path.read_text()
    assert "application/vnd.cellblock.denial+json" in saved
    (lab.folder / "copied.ipynb").write_text(
        saved.replace("import-not-allowed", "import-not-allowed ")
    )
    view.show("copied.ipynb")
    view.shot("cards-untrusted")
    text = view.outputs(0).first.inner_text()
    for part in (
        "cellblock did not run this cell: 2 findings",
        "lines 4 and 12",
        "Instead of os, line 1:",
        'add.allowed_modules = ["os"]',
    ):
        assert part in text
