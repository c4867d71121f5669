"""Kernels that may not start before their user has allowed it."""

import nbformat
import pytest

from cellblock.host.consent.store import Store
from support import reading
from support.approvals import always_answers, run
from support.kernels import Kernel, argv_for

UNSAFE = 'extends = "unsafe"\napprovals = "prompt"'


@pytest.fixture
def begin(world):
    """Start kernels that nothing has run in."""
    started = []

    def begin(text=UNSAFE, env=None):
        started.append(Kernel(argv_for(world.policy(text)), world=world, extra_env=env))
        return started[-1].wait_heard()

    yield begin
    for kernel in started:
        kernel.close()


def kept(world):
    """Return what was allowed for always, in the order of that."""
    data = world.home / ".local/share/cellblock"
    return always_answers(Store(data / "approved", data / "approval.key"))


def query(kernel, kind, **content):
    return kernel.ask(kind, content)["content"]


def test_a_start_that_a_required_log_can_not_take_is_refused_for_that(begin, world):
    folder = world.root / "logs"
    folder.symlink_to(world.work)
    kernel = begin(f'{UNSAFE}\n[audit]\nrequired = true\nfolder = "{folder}"')
    reply, published = run(kernel, "1", "{} session")[1:]
    assert reply["ename"] == "AuditProblem"
    (card,) = reading.cards(published, "problem")
    assert card["key"] == "audit.folder"
    folder.unlink()
    assert run(kernel, "1", "{} session")[1]["status"] == "ok"


def test_nothing_unsafe_starts_before_it_is_allowed(begin):
    kernel = begin()
    tree = kernel.tree()
    assert query(kernel, "complete_request", code="pri", cursor_pos=3)["matches"] == []
    assert not query(kernel, "inspect_request", code="print", cursor_pos=5)["found"]
    reply, published = kernel.run("open('/proc/self/status')")
    assert reply["ename"] == "PolicyProblem"
    card = " ".join(reading.card_text(published).split())
    assert "mode unsafe has to be asked for" in card
    assert "Start the kernel with --allow-unsafe, approve it where you can be asked" in card
    for end in ("no", "interrupt"):
        mid = kernel.execute_send("import os\nos.getpid()", allow_stdin=True)
        prompt = kernel.recv("stdin")["content"]["prompt"]
        assert prompt.startswith("┃ cellblock asks: may this kernel start with mode unsafe?\n")
        assert kernel.tree() == tree
        if end == "no":
            kernel.send("input_reply", {"value": end}, "stdin")
        else:
            kernel.interrupt()
        assert kernel.reply(mid)["content"]["ename"] == "PolicyProblem"
        kernel.until_idle(mid)
        assert kernel.tree() == tree
    prompts, reply, published = run(kernel, "import os\nos.getpid() > 0", "{}", "{} always")
    assert "┃ That was not taken" in prompts[1]
    assert reading.result(published) == "True"
    assert begin().run("1")[0]["status"] == "ok"


def test_a_narrower_policy_is_asked_about_anew_and_no_cell_ends_the_asking(begin, world):
    asks = 'approvals = "prompt"'
    kernel = begin(asks)
    run(kernel, "import shlex", "{} always")
    assert run(kernel, "import shlex")[1]["status"] == "ok"
    _, _, published = run(kernel, "%policy narrow approvals='never'")
    (card,) = reading.cards(published, "denial")
    assert [finding["rule"] for finding in card["findings"]] == ["policy-only-narrows"]
    assert run(kernel, "%policy narrow timeout=30")[1]["status"] == "ok"
    assert len(run(kernel, "import shlex", "{} always")[0]) == 1
    first, narrowed = kept(world)
    assert narrowed.digest != first.digest
    assert run(begin(asks), "import shlex")[1]["status"] == "ok"


def test_what_is_allowed_in_a_notebook_that_narrows_is_kept_under_that_policy(begin, world):
    asks, asked = 'approvals = "prompt"', {"timeout": 20, "undo_depth": 1}
    notebook = nbformat.v4.new_notebook(metadata={"cellblock": {"policy": asked}})
    nbformat.write(notebook, world.work / "mine.ipynb")
    named = {"JPY_SESSION_NAME": str(world.work / "mine.ipynb")}
    run(begin(asks, named), "import shlex", "{} always")
    assert run(begin(asks, named), "import shlex")[1]["status"] == "ok"
    run(begin(asks), "import shlex", "{} always")
    narrowed, written = kept(world)
    assert written.digest != narrowed.digest
