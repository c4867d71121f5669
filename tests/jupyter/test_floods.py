"""A cell that says too much: its head, its tail, a line between them, and %output for the rest."""

import re
import sys
import time

import pytest

from support import processes, reading

CAP = 8_000
DISPLAYS = 160_000
LIMITS = f"""
on_unsupported = 'ignore'
stdout_max_bytes = {CAP}
stderr_max_bytes = {CAP}
display_max_bytes = {DISPLAYS}
"""
MODES = {
    "safe": ("mode = 'safe'", ()),
    "unsafe": ("mode = 'unsafe'", ("--allow-unsafe",)),
}
LINES = "".join(f"line {number:06}\n" for number in range(2_000))
FLOOD = "for number in range(2_000): print(f'line {number:06}')"
NOTE = re.compile(r"\[cellblock left out [^\]]*\]")


@pytest.fixture(scope="module")
def small(start_shared, tmp_path_factory):
    """Start one kernel with small caps under each mode."""
    started = {}

    def of(name):
        if name not in started:
            mode, options = MODES[name]
            policy = tmp_path_factory.mktemp("policy") / "narrow.toml"
            policy.write_text(mode + LIMITS)
            started[name] = start_shared(policy, *options)
        return started[name]

    return of


@pytest.fixture(params=MODES)
def kernel(request, small):
    """Return the kernel with small caps of either mode."""
    return small(request.param)


@pytest.fixture
def unsafe_kernel(start, world):
    def started(extra="", **keywords):
        policy = world.policy(MODES["unsafe"][0] + LIMITS + extra)
        return start(policy, "--allow-unsafe", world=world, **keywords)

    return started


def streams(published):
    """Return streams in their order, those of one name joined."""
    joined = []
    for content in reading.of(published, "stream"):
        before = joined.pop()[1] if joined and joined[-1][0] == content["name"] else ""
        joined.append((content["name"], before + content["text"]))
    return joined


def left_out(published):
    texts = (reading.stream(published), reading.stream(published, "stderr"))
    return [note for text in (*texts, reading.notices(published)) for note in NOTE.findall(text)]


def parts(published):
    """Return the beginning of a stdout that was cut, what is said of the gap, and the end."""
    ((name, text),) = streams(published)
    assert name == "stdout"
    before, note, behind = re.split(r"(\[cellblock left out [^\]]*\]\n)", text)
    return before, note, behind


def page(kernel, argument):
    """Return the plain text of what %output shows."""
    reply, published = kernel.run(f"%output {argument}")
    assert reply["status"] == "ok"
    (shown,) = reading.of(published, "display_data")
    assert shown["data"].keys() == {"text/plain", "text/html"}
    return shown["data"]["text/plain"]


# --- streams ----------------------------------------------------------------------------------


@pytest.mark.quick
def test_a_flood_of_lines_shows_its_head_a_line_of_ours_and_its_tail(kernel):
    reply, published = kernel.run(FLOOD)
    head, note, tail = parts(published)
    missing = len(LINES) - len(head) - len(tail)
    assert head.endswith("\n")
    assert note == (
        f"[cellblock left out {missing:,} bytes of stdout here: stdout_max_bytes is 8,000. "
        f"All of it: %output {reply['execution_count']}]\n"
    )
    assert LINES.startswith(head)
    assert LINES.endswith(tail)
    assert tail.startswith("line ")
    assert CAP - 100 < len(head) + len(tail) <= CAP


def test_stderr_has_a_head_and_a_tail_too(small):
    kernel = small("unsafe")
    flood = "for number in range(2_000): print(f'line {number:06}', file=sys.stderr)"
    reply, published = kernel.run(f"import sys\n{flood}")
    head, tail = NOTE.split(reading.stream(published, "stderr"))
    head, tail, (note,) = head.removesuffix("\n"), tail.removeprefix("\n"), left_out(published)
    kept = f"%output {reply['execution_count']} stderr"
    assert note.endswith(f"stderr_max_bytes is 8,000. All of it: {kept}]")
    assert LINES.startswith(head)
    assert LINES.endswith(tail)
    assert len(head) + len(tail) <= CAP


def test_the_line_is_in_no_colour_of_the_cells_and_the_tail_is_cleaned(kernel):
    code = (
        "print('\\x1b[8mhidden')\nfor n in range(2_000): print('x' * 20)\n"
        "print('\\x1b]0;title\\x07\\x1b[2J\\x1b[31mlast\\x1b[0m')"
    )
    _, published = kernel.run(code)
    head, _, tail = parts(published)
    assert head.endswith("\n\x1b[0m")
    assert tail.endswith("xx\n\x1b[31mlast\x1b[0m\n")


def test_an_exception_stands_below_the_tail(kernel):
    _, published = kernel.run(f"{FLOOD}\n1/0")
    assert reading.kinds(published)[-3:] == ["stream", "stream", "error"]
    assert streams(published)[-1][1].endswith("line 001999\n")


def test_a_cell_that_is_ended_in_a_flood_shows_its_tail_above_the_card(unsafe_kernel):
    kernel = unsafe_kernel("timeout = 1.0\n")
    ends = {
        "timeout": "import time\nwhile True:\n  try: time.sleep(9)\n  except BaseException: pass",
        "kill": "import os\nos.kill(os.getpid(), 9)",
        "violation": "import os\nos.write(3, b'\\xff' * 100)",
    }
    for number, (how, end) in enumerate(ends.items(), start=1):
        _, published = kernel.run(f"{FLOOD}\nimport sys\nsys.stdout.flush()\n{end}")
        last = ["stream", "stream", "display_data", "error"]
        assert reading.kinds(published)[-4:] == last, how
        assert streams(published)[-1][1].endswith("line 001999\n"), how
        count = 2 * number - 1
        assert f"All of it: %output {count}]" in left_out(published)[0], how
        assert page(kernel, f"{count} last").endswith("line 001999\n"), how


def test_a_flood_between_cells_shows_its_tail_when_the_next_cell_begins(small):
    kernel = small("unsafe")
    code = f"import threading, time\ndef late():\n  time.sleep(0.3)\n  {FLOOD}"
    mid = kernel.execute_send(f"{code}\nthreading.Thread(target=late).start()")
    kernel.reply(mid)
    kernel.until_idle(mid)
    time.sleep(1.5)
    kernel.run("1")
    late = [m for c, m in kernel.log if c == "iopub" and m["parent_header"].get("msg_id") == mid]
    head, _, tail = parts(late)
    assert LINES.startswith(head)
    assert LINES.endswith(tail)


# --- displays ---------------------------------------------------------------------------------


def test_the_first_displays_are_shown_and_the_last_and_the_result(kernel):
    reply, published = kernel.run("for n in range(3_000): display(n)\n'the result'")
    texts = [c["data"]["text/plain"] for c in reading.of(published, "display_data")]
    shown = [int(text) for text in texts if not NOTE.search(text)]
    first = next(i for i, n in enumerate(shown) if i != n)
    assert shown == [*range(first), *range(3_000 - (len(shown) - first), 3_000)]
    assert first > 500
    assert len(shown) - first >= 50
    assert reading.result(published) == "'the result'"
    (note,) = left_out(published)
    assert note.endswith(f"All of it: %output {reply['execution_count']} display]")
    assert "\n1500\n" in page(kernel, f"{reply['execution_count']} display")


def test_a_progress_display_ends_with_its_last_state_however_often_it_was_updated(kernel):
    _, published = kernel.run(
        "bar = display('start', display_id='bar')\nfor n in range(1_500): bar.update(n)"
    )
    contents = reading.of(published, "update_display_data")
    assert contents[-1]["data"]["text/plain"] == "1499"
    assert {c["transient"]["display_id"] for c in contents} == {"bar"}
    assert len(contents) < 1_000
    assert not left_out(published)


# --- %output ----------------------------------------------------------------------------------


def test_pages_lead_from_one_to_the_next_and_are_the_whole_text(kernel):
    number = kernel.run("for number in range(9_000): print(f'line {number:06}')")[0][
        "execution_count"
    ]
    assert f"  cell {number}, stdout, 108,000 bytes: %output {number}" in page(kernel, "")
    parts, command = [], f"{number}"
    for at in range(1, 5):
        title, where, content = page(kernel, command).split("\n", 2)
        assert title == f"Output of cell {number}, stdout"
        following = f": %output {number} {at + 1}" if at < 4 else ""
        assert where == f"page {at} of 4{following}"
        parts.append(content)
        command = where.rpartition("%output ")[2]
    assert "".join(parts) == "".join(f"line {n:06}\n" for n in range(9_000))
    assert page(kernel, f"{number} last").endswith(parts[-1])
    assert page(kernel, f"{number} stdout 2").endswith(parts[1])
    assert page(kernel, f"{number} 5") == f"There are 4 pages: %output {number} last"


USAGE = (
    "%output lists what is kept; %output 7 shows cell 7's first page, %output 7 2 and "
    "%output 7 last others, %output 7 stderr another stream."
)


NOT_UNDERSTOOD = (
    *("x", "-1", "7 0", "7 -1", "7 2 3", "7 stdout stderr"),
    *("7 ../8", "\u0667", "1e3", "9" * 10, "7 " * 99),
)


def test_what_is_not_understood_gets_one_line(kernel):
    shown = {argument: page(kernel, argument) for argument in NOT_UNDERSTOOD}
    assert shown == dict.fromkeys(NOT_UNDERSTOOD, USAGE)


def test_a_cell_of_which_nothing_is_kept_says_so(kernel):
    assert page(kernel, "9999").startswith("Nothing is kept of cell 9999")


def test_a_page_is_text_and_nothing_else(kernel):
    number = kernel.run(
        "print('redrawn\\r<script>alert(1)</script>\\x1b[31mred\\x1b[0m\\ttab\\u202e')\n" + FLOOD
    )[0]["execution_count"]
    _, published = kernel.run(f"%output {number}")
    (shown,) = reading.of(published, "display_data")
    first = shown["data"]["text/plain"].splitlines()[2:3]
    assert first == ["<script>alert(1)</script>red\ttab\u27e8U+202E\u27e9"]
    assert "<script" not in shown["data"]["text/html"]
    assert "&lt;script&gt;alert(1)&lt;/script&gt;red" in shown["data"]["text/html"]


def test_pages_count_as_displays_do(kernel):
    number = kernel.run(FLOOD)[0]["execution_count"]
    lines = "\n".join([f"%output {number}"] * 20)
    _, published = kernel.run(lines)
    assert len(reading.of(published, "display_data")) <= 8
    assert "display_max_bytes is 160,000" in left_out(published)[0]


# --- the files --------------------------------------------------------------------------------


def kept_files(world):
    folder = world.home / ".cache" / "cellblock" / "output"
    return sorted(p for p in folder.rglob("*") if p.is_file() and p.name != "lock")


def test_no_cell_reads_what_is_kept_not_even_beneath_its_own_roots(unsafe_kernel, world):
    (world.home / ".cache" / "other").mkdir(parents=True)
    (world.home / ".cache" / "other" / "file").write_text("readable")
    kernel = unsafe_kernel(f"filesystem_read_roots = ['{world.home}']\n")
    kernel.run(FLOOD)
    (file,) = kept_files(world)
    assert file.read_text() == LINES
    assert reading.result(kernel.run(f"open('{world.home}/.cache/other/file').read()")[1])
    for path in (file, file.parent / "lock"):
        reply, _ = kernel.run(f"open('{path}').read()")
        assert reply["ename"] == "PermissionError"


def test_what_a_killed_kernel_left_is_removed_by_the_next_and_nothing_is_kept_of_that(
    unsafe_kernel, world
):
    kernel = unsafe_kernel()
    kernel.run(FLOOD)
    kernel.proc.kill()
    kernel.proc.wait()
    assert kept_files(world)
    kernel = unsafe_kernel()
    processes.until(lambda: not kept_files(world))
    kernel.run(FLOOD)
    assert kept_files(world)
    kernel.end()
    assert not kept_files(world)


def test_a_link_in_the_place_of_the_folder_is_not_followed(unsafe_kernel, world):
    target = world.root / "target"
    target.mkdir()
    (world.home / ".cache" / "cellblock").mkdir(parents=True, mode=0o700)
    (world.home / ".cache" / "cellblock" / "output").symlink_to(target)
    kernel = unsafe_kernel()
    _, published = kernel.run(FLOOD)
    assert left_out(published)[0].endswith(". Not kept: Not a directory]")
    assert not list(target.iterdir())
    said = "Nothing is kept. Output that was left out is kept, up to output_kept_max_bytes."
    assert page(kernel, "") == said


#: A command that runs another whose files can't grow beyond 100,000 bytes, as on a full disk.
SMALL_FILES = (
    sys.executable,
    "-c",
    (
        "import os, resource as r, sys; r.setrlimit(r.RLIMIT_FSIZE, (100_000, r.RLIM_INFINITY)); "
        "os.execv(sys.argv[1], sys.argv[1:])"
    ),
)


def test_a_disk_that_takes_no_more_is_said_and_costs_nothing_else(unsafe_kernel):
    kernel = unsafe_kernel(prefix=SMALL_FILES)
    reply, published = kernel.run("for number in range(90_000): print(f'line {number:06}')")
    assert reply["status"] == "ok"
    assert left_out(published)[0].endswith(". Its first 100,000 bytes (File too large): %output 1]")
    assert streams(published)[-1][1].endswith("line 089999\n")
    assert page(kernel, "1 last").split("\n")[1] == "page 4 of 4 (its beginning: File too large)"


def test_one_cell_keeps_its_beginning_in_half_of_the_cap(unsafe_kernel):
    kernel = unsafe_kernel("output_kept_max_bytes = 40_000\n")
    _, published = kernel.run("for number in range(9_000): print(f'line {number:06}')")
    assert left_out(published)[0].endswith(". Its first 20,000 bytes: %output 1]")
    assert "page 1 of 1 (its beginning)" in page(kernel, "1")


FLOOD_BETWEEN = """
import threading
from IPython.display import display
shown = display({"text/plain": ""}, raw=True, display_id=True)
def flood():
    while True: shown.update({"text/html": "<b>" * 2_000, "text/plain": ""}, raw=True)
for _ in range(3): threading.Thread(target=flood, daemon=True).start()
"""


def test_a_flood_between_cells_takes_a_part_of_the_hosts_time(unsafe_kernel):
    kernel = unsafe_kernel()
    kernel.run(FLOOD_BETWEEN)
    before = processes.cpu_seconds(kernel.proc.pid)
    time.sleep(2)
    assert processes.cpu_seconds(kernel.proc.pid) - before < 0.8
    assert reading.result(kernel.run("6 * 7")[1]) == "42"
