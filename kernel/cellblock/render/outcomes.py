"""Cards for cells that did not run to their end: refused, stopped or undone.

For what was refused (a cell, a widget, a comm) they say what, why, and what to do instead. For a
cell that was stopped, or undone, they say why, and what became of the variables. There are cards
for what the OS layer refused a cell that ran, with the words that go with its exception.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from cellblock.analysis.findings import list_line
from cellblock.policy.vocabulary import HOST_TARGETS, PRESETS
from cellblock.render import cards as c
from cellblock.render.allowing import Allowing, allowing, in_a_line
from cellblock.render.cards import (
    DENIAL_JSON,
    NAME_COLUMNS,
    OUTCOME_JSON,
    REFUSAL_JSON,
    Bundle,
    Failure,
    count,
)
from cellblock.render.headings import Heading
from cellblock.render.text import COLUMNS, ELLIPSIS, clip, quoted, visible, width, wrap

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cellblock.analysis import Finding


#: Findings drawn in full; a cell made of nothing but findings must not make a 10 MB card.
_MAX_DRAWN = 50
_MAX_JSON = 1_000
#: Below this much room beside the carets, a reason goes on lines of its own.
_MIN_REASON = 36
#: Lines and names that a row of a card has of findings that are one.
_MOST_LINES: Final = 5
_MOST_SUBJECTS: Final = 4
#: Characters of the names in the label of what to do instead.
_MOST_OF_LABEL: Final = 30
#: Lines of a rewrite: a guest may claim more.
_MAX_REWRITE = 2
_IN_SUMMARY = 4
#: Where lines go of those who run a preset.
_OWN_FILE: Final = "in a policy file of your own (cellblock install --policy FILE)"
#: Rules whose reasons are whole sentences.
ABOUT_THE_CELL = frozenset(
    {
        "argument-not-allowed",
        "cell-not-approved",
        "not-a-template",
        "relative-import",
        "source-too-complex",
        "template-not-found",
        "template-state",
    }
)


def grouped(findings: Sequence[Finding]) -> list[list[Finding]]:
    """Return findings, those together that have one reason and are solved by one fix."""
    found: dict[tuple[object, ...], list[Finding]] = {}
    for one in findings:
        key = (one.rule, one.why, one.remedy, one.allows, one.rewrite)
        found.setdefault(key, []).append(one)
    return list(found.values())


def summary(findings: Sequence[Finding]) -> str:
    """Return one line: ``2 findings: import-not-allowed at line 1 (os), …``."""
    groups = grouped(findings)
    named = [
        f"{visible(group[0].rule)} at {places(group)}"
        + (f" ({names})" if (names := subjects(group)) else "")
        for group in groups[:_IN_SUMMARY]
    ]
    left = len(groups) - len(named)
    more = [f"and {left:,} more"] if left else []
    return f"{count(len(groups), 'finding')}: {', '.join([*named, *more])}"


def places(group: Sequence[Finding]) -> str:
    """Return where findings are: ``line 3``, ``lines 1 and 4``."""
    lines = list(dict.fromkeys(f"{one.line:,}" for one in group))
    more = [f"{len(lines) - _MOST_LINES:,} more"] if len(lines) > _MOST_LINES else []
    return f"line{'s' * (len(lines) > 1)} {_series([*lines[:_MOST_LINES], *more])}"


def subjects(group: Sequence[Finding]) -> str:
    """Return what findings are about."""
    names = list(dict.fromkeys(filter(None, map(subject, group))))
    more = [f"and {len(names) - _MOST_SUBJECTS:,} more"] if len(names) > _MOST_SUBJECTS else []
    return ", ".join([*names[:_MOST_SUBJECTS], *more])


def subject(finding: Finding) -> str:
    """Return what a finding is about, visible and not too long."""
    return clip(visible(finding.subject), NAME_COLUMNS)


def reason(finding: Finding) -> str:
    """Return why a finding is one: ``open opens files``."""
    if finding.rule in ABOUT_THE_CELL or not finding.subject:
        return finding.why[:1].upper() + finding.why[1:]
    return f"{subject(finding)} {finding.why}"


def remedies(findings: Sequence[Finding]) -> list[str]:
    """Return each finding's remedy, empty where an earlier finding has the same."""
    seen, shown = set[str](), []
    for text in (finding.remedy for finding in findings):
        first = text.partition(" ")[0]
        # Names and acronyms keep their case.
        lowered = text[:1].lower() + text[1:] if first.istitle() and first.isalpha() else text
        shown.append("" if text in seen else lowered)
        seen.add(text)
    return shown


def rewrites(findings: Sequence[Finding]) -> list[list[str]]:
    """Return the lines of each finding's rewrite, none where an earlier finding has the same."""
    texts, shown = [finding.rewrite for finding in findings], []
    for index, text in enumerate(texts):
        lines = [] if text in texts[:index] else text.split("\n")[:_MAX_REWRITE]
        shown.append([visible(line) for line in lines if line])
    return shown


def finding_json(finding: Finding) -> dict[str, Any]:
    """Return a finding as JSON data: lines count from 1, columns from 0 and in characters.

    ``cut`` is there where the excerpt is a part of a long line: how many characters are left out.
    ``allows`` are lines of a policy file that would allow it.
    """
    names = ["rule", "line", "column", "end_column", "excerpt", "subject", "why", "remedy"]
    names += [name for name in ("cut", "rewrite", "allows") if getattr(finding, name)]
    return {name: c.as_json(getattr(finding, name)) for name in names}


# --- a source line with a mark under what a finding is about ----------------------------------


class Excerpt(NamedTuple):
    """One source line, split around its mark; every part is visible text."""

    before: str
    marked: str
    after: str

    @property
    def line(self) -> str:
        """The whole line."""
        return "".join(self)

    @property
    def carets(self) -> str:
        """A caret for each column of the mark, at least one, below their characters."""
        return f"{' ' * width(self.before)}{'^' * max(1, width(self.marked))}"


def excerpt(finding: Finding) -> Excerpt:
    """Split a finding's source line around the characters it refuses."""
    text = finding.excerpt
    start = min(max(0, finding.column - finding.cut), len(text))
    end = start + max(1, finding.end_column - finding.column)
    before = (ELLIPSIS if finding.cut else "") + visible(text[:start])
    return Excerpt(before, visible(text[start:end]), visible(text[end:]))


def _window(shown: Excerpt, columns: int) -> Excerpt:
    """Return ``shown`` cut to ``columns``, keeping the start of the mark in view."""
    if width(shown.line) <= columns:
        return shown
    before = shown.before
    if width(before) > columns // 3:
        while before and (width(before) > columns // 3 - 1 or not width(before[0])):
            before = before[1:]
        before = ELLIPSIS + before
    marked = clip(shown.marked, columns - width(before))
    room = columns - width(before) - width(marked)
    return Excerpt(before, marked, clip(shown.after, room) if room > 0 else "")


def drawn_source(finding: Finding, columns: int) -> list[str]:
    """Return the source line, the carets, and the reason beside or below them."""
    number = str(finding.line)
    gutter = f"  {' ' * len(number)} │ "
    shown = _window(excerpt(finding), columns - width(gutter))
    top = f"  {number} │ {shown.line}".rstrip()
    carets = f"{gutter}{shown.carets} "
    # The caret points at a builtin; a module may be one name of several on its line.
    named = f"{subject(finding)} " if finding.rule == "import-not-allowed" else ""
    why = named + visible(finding.why)
    room = columns - width(carets)
    if width(why) <= room:
        return [top, f"{carets}{why}".rstrip()]
    if room >= _MIN_REASON:
        hanging = gutter + " " * (width(carets) - width(gutter))
        return [top, *wrap(why, indent=carets, hanging=hanging, columns=columns)]
    return [top, carets.rstrip(), *wrap(why, indent=gutter, columns=columns)]


# --- the card for a refused cell --------------------------------------------------------------


class _Row(NamedTuple):
    """One line of a denial: where, what and why; ``what`` may be ``several`` names."""

    place: str
    what: str
    why: str
    several: bool = False

    @property
    def gap(self) -> str:
        """What stands between names and reason, which is said of one."""
        return ": " if self.several else " "


class _Instead(NamedTuple):
    """What to do instead: the label says of which row, if not of all."""

    label: str
    text: str
    rewrite: list[str]


def denial(
    findings: Sequence[Finding],
    *,
    policy_name: str,
    file: str = "",
    is_operators: bool = False,
    source_label: str | None = None,
) -> Bundle:
    """Return the card for a refused cell, as plain text, HTML and JSON.

    A line says each finding: where, what and why. What to do instead follows, then one block of
    lines of a policy file that would allow all of it. ``file`` is the policy's file as it was
    named, which ``is_operators`` if the reader can't write to it. ``source_label`` names what was
    refused where "this cell" would not do.
    """
    groups = grouped(findings)
    title = f"cellblock did not run {source_label or 'this cell'}: {count(len(groups), 'finding')}"
    policy = f"policy: {clip(visible(policy_name), NAME_COLUMNS)}"
    gap = " " * (COLUMNS - width(visible(title)) - width(policy))
    lines = [f"{visible(title)}{gap}{policy}"] if len(gap) > 1 else [*wrap(visible(title)), policy]
    drawn = groups[:_MAX_DRAWN]
    rows, body = list(map(_row, drawn)), list[str]()
    indent = max((width(row.place) for row in rows), default=0) + 4
    lines.append("")
    for number, row in enumerate(rows):
        text = f"{row.what}{row.gap}{row.why}" if row.what else row.why
        lines += wrap(text, indent=f"  {row.place}".ljust(indent), hanging=" " * indent)
        place = c.element("span", row.place, style=f"color:{c.MUTED}")
        what = [c.code(row.what), row.gap] if row.what else []
        body.append(c.paragraph(place, " ", *what, row.why, tight=number > 0))
    if left := groups[_MAX_DRAWN:]:
        rules = Counter(group[0].rule for group in left).most_common(5)
        named = ", ".join(f"{number:,} {rule}" for rule, number in rules)
        more = f"And {count(len(left), 'more finding')}, up to line {left[-1][-1].line}: {named}"
        lines += wrap(more, indent="  ")
        body.append(c.paragraph(more, color=c.MUTED))
    instead = _instead(drawn)
    for one in instead:
        shown, text_lines = c.instead(one.text, one.label) if one.text else ("", [])
        body += [shown] if shown else []
        lines += ["", *text_lines, *(f"    {clip(line, COLUMNS - 4)}" for line in one.rewrite)]
        body += [c.block(one.rewrite)[0]] if one.rewrite else []
    allows = allowing(
        (line for one in findings for line in one.allows), file, is_operators=is_operators
    )
    shown_parts, allow_lines = c.allowing(allows)
    body += shown_parts
    lines += ["", *allow_lines] if allow_lines else []
    return c.make_card(
        title,
        *body,
        lines=lines,
        symbol="⊘",
        color=c.RED,
        side=c.policy_chip(policy_name),
        mime=DENIAL_JSON,
        data={
            "policy": policy_name,
            "source": source_label,
            "total": len(findings),
            "left": len(left),
            "rows": [
                row._asdict() | {"finding": findings.index(group[0])}
                for row, group in zip(rows, drawn, strict=True)
            ],
            "instead": [one._asdict() for one in instead],
            "allow": c.plain(allows.how),
            "write": allows.block,
            "findings": [finding_json(f) | {"reason": reason(f)} for f in findings[:_MAX_JSON]],
        },
    )


def _row(group: Sequence[Finding]) -> _Row:
    first = group[0]
    if first.rule in ABOUT_THE_CELL or not first.subject:
        return _Row(places(group), "", reason(first))
    several = any(one.subject != first.subject for one in group)
    return _Row(places(group), subjects(group), visible(first.why), several)


def _instead(groups: Sequence[Sequence[Finding]]) -> list[_Instead]:
    """Return what to do instead, each once; it names of what unless all have it in common."""
    found: dict[tuple[str, str], list[Finding]] = {}
    for group in groups:
        found.setdefault((group[0].remedy, group[0].rewrite), []).extend(group)
    found.pop(("", ""), None)
    is_of_all = len(found) == 1 and sum(map(len, found.values())) == sum(map(len, groups))
    shown = []
    for group in found.values():
        (remedy,), (rewrite,) = remedies(group[:1]), rewrites(group[:1])
        names = subjects(group)
        of = f" of {names}" if names and len(names) <= _MOST_OF_LABEL else ""
        label = "Instead: " if is_of_all else f"Instead{of}, {places(group)}: "
        shown.append(_Instead(label, remedy, rewrite))
    return shown


def denial_failure(card: Bundle, findings: Sequence[Finding]) -> Failure:
    """Return the error that goes with a card that ``denial`` made of ``findings``."""
    return Failure("PolicyDenied", summary(findings), card["text/plain"])


# --- the cards for comms: a widget not shown, a comm not opened, parts left out ---------------

COMM_JSON: Final = "application/vnd.cellblock.comm+json"
_LONGEST: Final = 100
_NOTHING: Final = Allowing()
_RIGHTS: Final = "it would run in the page, with all that you may do there."


def refused_widget(
    module: str, model: str, *, policy_name: str, file: str = "", known: bool
) -> Bundle:
    """Return the card for a widget whose model is not allowed.

    ``file`` is the policy's file as it was named. ``known`` says that its module is allowed and
    only the model is not known.
    """
    shown, kind = _of_title(module), _of_title(model)
    title = f"cellblock did not show a widget of {shown}"
    if known:
        why = f"{kind} is none of the widgets of {shown} that cellblock knows how to clean."
        remedy, lines = "use one of ipywidgets' own, or show the value itself.", list[str]()
    else:
        why = f"{kind} brings a script of its own: {_RIGHTS}"
        remedy = "use one of ipywidgets' own, or a picture."
        lines = [list_line("add.widget_modules", [module])]
    data = {"module": clip(module, _LONGEST), "model": clip(model, _LONGEST)}
    return _refusal(title, why, remedy, policy_name, data, allowing(lines, file))


def widgets_as_text(*, policy_name: str) -> Bundle:
    """Return the card for widgets where text alone is shown."""
    return _refusal(
        'Widgets are shown as text: display = "text"',
        "The text of one is what it was when it was displayed: later changes are not shown.",
        "print what changes; for a progress bar, from tqdm import tqdm.",
        policy_name,
        {"target": "jupyter.widget"},
    )


def refused_comm(target: str, *, policy_name: str, file: str = "") -> Bundle:
    """Return the card for a comm whose target is not allowed; ``file`` is the policy's."""
    title = f"cellblock did not open a comm to {_of_title(target)}"
    target = clip(target, _LONGEST)
    if target.startswith(HOST_TARGETS):
        why = "Through it the host itself speaks with the front end: no cell has a part in that."
        return _refusal(title, why, "choose another name.", policy_name, {"target": target})
    why = f"An extension of the front end listens there: what it is told to do, {_RIGHTS}"
    allows = allowing([list_line("add.comm_targets", [target])], file)
    return _refusal(title, why, "", policy_name, {"target": target}, allows)


def _file_of(policy_name: str) -> str:
    """Return where to write what a policy of this name, or none, does not allow."""
    if policy_name in PRESETS or not policy_name:
        return _OWN_FILE
    return f"in the file of policy {clip(visible(policy_name), NAME_COLUMNS)}"


def _refusal(
    title: str,
    why: str,
    remedy: str,
    policy_name: str,
    data: dict[str, str],
    allows: Allowing = _NOTHING,
) -> Bundle:
    shown, remedy_lines = c.instead(remedy) if remedy else (c.join(), [])
    allowed, allow_lines = c.allowing(allows)
    return c.make_card(
        title,
        c.paragraph(why),
        shown,
        *allowed,
        lines=[*wrap(title), *wrap(why, indent="  "), *remedy_lines, *allow_lines],
        own=[*remedy_lines[:1], *allow_lines[:1]],
        symbol="⊘",
        color=c.AMBER,
        side=c.policy_chip(policy_name),
        mime=COMM_JSON,
        data={"outcome": "refused", **data},
    )


def cleaned_widgets(parts: Sequence[tuple[str, str, str]], *, policy_name: str) -> Bundle:
    """Return the card for parts of widgets that were left out: model, key, why."""
    title = f"cellblock left out {count(len(parts), 'part')} of the widgets above"
    rows = [(clip(f"{model}.{key}", 60), clip(why, _LONGEST)) for model, key, why in parts]
    lines = wrap(title)
    for name, why in rows:
        lines += wrap(f"{name}: {why}", indent="  ", hanging="    ")
    return c.make_card(
        title,
        *(c.paragraph(c.code(name), " ", why, tight=True) for name, why in rows),
        lines=lines,
        symbol="◐",
        color=c.AMBER,
        side=c.policy_chip(policy_name),
        mime=COMM_JSON,
        data={"outcome": "cleaned", "parts": [{"part": n, "why": why} for n, why in rows]},
    )


class Reason(StrEnum):
    """Why a cell was stopped."""

    breach = "breach"
    cpu = "cpu"
    crashed = "crashed"
    deep = "deep"
    exited = "exited"
    files = "files"
    folders = "folders"
    forks = "forks"
    interrupted = "interrupted"
    locked = "locked"
    lost = "lost"
    mapped = "mapped"
    memory = "memory"
    protocol = "protocol"
    scratch = "scratch"
    timeout = "timeout"


#: Why, in words: ``{limit}`` is the limit, or what is known of the cause.
_WORDS: Final = {
    Reason.breach: "it got around the language layer; refused: {limit}",
    Reason.cpu: "it used more than {limit} of processor time (cpu_seconds)",
    Reason.crashed: "its interpreter crashed ({limit})",
    Reason.deep: "it made more folders than can be measured, or more than {limit} in one another",
    Reason.exited: "it ended its interpreter with exit status {limit}",
    Reason.files: "it left more than {limit} in the project, which are staged",
    Reason.folders: "it kept more than {limit} open",
    Reason.forks: "its sandbox and its forks held more than {limit} of memory (forks_max_bytes)",
    Reason.interrupted: "you interrupted it twice and it did not end",
    Reason.locked: "for {limit} it could not be told how full its folders are",
    Reason.lost: "its interpreter ended without a reply ({limit})",
    Reason.mapped: "its processes had mapped pages of files that would fill {limit}",
    Reason.memory: "it used more than {limit} of memory (memory_max_bytes)",
    Reason.protocol: "its interpreter broke the kernel's protocol ({limit})",
    Reason.scratch: "it kept more than {limit} in the scratch folder (scratch_max_bytes)",
    Reason.timeout: "it ran longer than {limit} (timeout)",
}
#: Nobody stopped these.
_BY_ITSELF: Final = frozenset({Reason.crashed, Reason.exited, Reason.lost})
#: The policy's field that is the limit.
_SETTINGS: Final = {
    Reason.cpu: "cpu_seconds",
    Reason.forks: "forks_max_bytes",
    Reason.memory: "memory_max_bytes",
    Reason.scratch: "scratch_max_bytes",
    Reason.timeout: "timeout",
}


#: How the names of operations begin (PEP 578), and what they are about.
_OPERATIONS: Final = (
    (("open", "os.listdir", "os.scandir", "shutil.", "glob.", "tempfile.", "mmap."), "files"),
    (("subprocess.", "os.exec", "os.posix_spawn", "os.fork", "os.system", "os.kill", "signal."),
     "processes"),
    (("socket.", "urllib.", "http.", "smtplib.", "ftplib."), "the network"),
    (("ctypes.", "import"), "native code and modules that are not allowed"),
    (("code.", "function.", "compile", "exec", "object.", "gc.", "sys.", "marshal.", "pickle."),
     "the interpreter itself"),
    (("os.",), "files"),
)  # fmt: skip


_OPERATION: Final = re.compile(r"[a-zA-Z_][\w.]{0,59}", re.ASCII)


def operation(name: str) -> str:
    """Return an operation's name with what it is about, for the reader of the card.

    A guest says it: what is no such name is not repeated.
    """
    if not _OPERATION.fullmatch(name):
        return "an operation"
    about = next((what for begins, what in _OPERATIONS if name.startswith(begins)), "")
    return f"{name} ({about})" if about else name


class State(StrEnum):
    """What became of the variables."""

    gone = "gone"  # the interpreter was restarted
    kept = "kept"  # the interpreter lives on; the cell was interrupted
    restored = "restored"  # a snapshot took over
    apart = "apart"  # they are a variant's: whoever reads of them has others


_STATES: Final = {
    State.gone: f"{Heading.VARIABLES}gone: the interpreter was restarted. Run your cells again.",
    State.kept: f"{Heading.INTERRUPTED}your variables are there, with what it did until then.",
    State.restored: f"{Heading.VARIABLES}as they were before it.",
    State.apart: f"{Heading.APART}gone, unless this variant is kept.",
}


def stopped(
    reason: Reason | str,
    limit: str = "",
    *,
    state: State,
    lost: Sequence[str] = (),
    own: str = "",
    beside: bool = False,
    estimate: str = "",
    policy_name: str = "",
) -> Bundle:
    """Return the card for a stopped cell.

    ``limit`` is the limit reached ("60 s") or the cause known ("signal 11"); it may be empty.
    ``lost`` names what the restored snapshot lacks. ``own`` is what to run the cell with
    for more time, where the limit came with the cell and not from the policy; ``beside`` says that
    it is the end of another that ran at the same time. ``estimate`` is "estimated" where nothing
    told how much memory the cell's processes share, and "charged" where it is too much only with
    memory of the OS kernel's, of which nothing tells whose it is.
    """
    reason = Reason(reason)
    lines = [
        f"{_opening(reason)}{_sentence(reason, limit, beside=beside)}.",
        _STATES[state] + _lost(lost),
    ]
    if reason in {Reason.files, Reason.scratch}:
        anew = "%changes drop and restart" if reason is Reason.files else "restart"
        lines.append(f"{Heading.FILES}remove some in a cell, or {anew} the kernel.")
        if reason is Reason.scratch:
            lines.append(f"{Heading.REMOVED_FILE}all that have it open close it.")
    if reason is Reason.folders:
        lines.append(
            f"{Heading.REMOVED_FOLDER}so do those that it was in, until all that have it open "
            "close it."
        )
    if reason is Reason.deep:
        lines.append(
            f"{Heading.ANEW}empties its scratch folder; %changes drop lets go of what "
            "is in the project."
        )
    if estimate == "estimated" and reason is Reason.memory:
        lines.append(
            f"{Heading.ESTIMATED}only be estimated here. To have it measured, set "
            f'backend = "bubblewrap" {_file_of(policy_name)}.'
        )
    if estimate == "charged" and reason is Reason.memory:
        lines.append(f"{Heading.CHARGED}is an estimate: another program may have it.")
    if own:
        lines.append(f"{Heading.TO_RAISE}: run the cell with {own}.")
    elif setting := _SETTINGS.get(reason):
        lines.append(
            f"{Heading.TO_RAISE}, set {setting} {_file_of(policy_name)}. "
            "%policy shows what is set now."
        )
    data: dict[str, Any] = {
        "outcome": "stopped",
        "reason": reason,
        "limit": limit,
        "state": state,
    }
    if beside:
        data["beside"] = True
    return _card(lines, state, data, lost)


def stopped_failure(card: Bundle) -> Failure:
    """Return the error that goes with a card of ``stopped``."""
    data = card[OUTCOME_JSON]
    beside = data.get("beside", False)
    sentence = _sentence(Reason(data["reason"]), data["limit"], beside=beside)
    return Failure("CellStopped", sentence.removeprefix(": ").strip(), card["text/plain"])


def undone(counts: Sequence[int], *, lost: Sequence[str] = ()) -> Bundle:
    """Return the card for ``%undo``; ``counts`` are the numbers of the cells that were undone."""
    cells = _series([f"[{count}]" for count in counts])
    title = f"Cells {cells} are undone."
    if len(counts) == 1:
        title = Heading.UNDONE.format(number=counts[0])
    variables = f"{Heading.VARIABLES}as they were before {f'[{counts[0]}]' if counts else 'it'}."
    lines = [title, variables + _lost(lost), str(Heading.STAYS)]
    return _card(lines, State.restored, {"outcome": "undone", "cells": counts}, lost)


def _series(parts: Sequence[str]) -> str:
    """Return ``a``, ``a and b``, ``a, b and c``."""
    return " and ".join(filter(None, (", ".join(parts[:-1]), *parts[-1:])))


def restored(name: str, *, branch: str = "", lost: Sequence[str] = ()) -> Bundle:
    """Return the card for ``%restore``, and for a ``branch`` that goes on from a kept state."""
    title = f"{Heading.CHECKPOINT}{name}."
    if branch:
        title = Heading.BRANCH.format(name=branch)
        title += f" It goes on from {name}." * (name != branch)
    lines = [
        title,
        f"{Heading.VARIABLES}as they were there.{_lost(lost)}",
        str(Heading.STAYS),
    ]
    return _card(
        lines,
        State.restored,
        {"outcome": "restored", "checkpoint": name} | ({"branch": branch} if branch else {}),
        lost,
    )


def _opening(reason: Reason) -> Heading:
    """Return how a card begins: who ended the cell, cellblock or the cell itself."""
    return Heading.LOST if reason in _BY_ITSELF else Heading.STOPPED


def _sentence(reason: Reason, limit: str, *, beside: bool) -> str:
    """Return why, to go on with "cellblock stopped this cell"."""
    sentence = _WORDS[reason]
    if limit:
        sentence = sentence.format(limit=visible(limit))
    else:
        sentence = sentence.replace(" ({limit})", "").replace("{limit}", "its limit")
    return f" with one that ran beside it, of which: {sentence}" if beside else f": {sentence}"


def _lost(lost: Sequence[str]) -> str:
    return f" Not restored: {', '.join(lost)}." if lost else ""


def _card(lines: Sequence[str], state: State, data: dict[str, Any], lost: Sequence[str]) -> Bundle:
    title, variables, *advice = lines
    gone = state is State.gone
    # What was asked for is shown as the lists of branches and of output are.
    asked = data["outcome"] in ("restored", "undone")
    return c.make_card(
        title,
        c.paragraph(c.element("strong", variables) if gone else variables),
        *(c.paragraph(line, color=c.MUTED) for line in advice),
        lines=[part for line in lines for part in wrap(line)],
        symbol="≡" if asked else "■",
        color=c.GREY if asked else c.RED if gone else c.AMBER,
        mime=OUTCOME_JSON,
        data=data | {"notes": lines[1:], "lost": lost},
    )


_MAX_PART: Final = 300


@dataclass(frozen=True, slots=True)
class Remedy:
    """The line that allows it, if one does, and what to do without.

    ``listed`` says that the line adds to a list, ``raises`` that it is a limit's: how much would do
    is not known.
    """

    line: str = ""
    listed: bool = False
    raises: bool = False
    instead: str = ""


@dataclass(frozen=True, slots=True)
class Refusal:
    """What a cell was refused: the policy's field, why, and what it had asked for.

    ``advice`` is what the source check says of a place in the cell that leads there, and
    ``rewrite`` a line or two that do the same with an operation of the host's.
    """

    field: str
    what: str
    remedy: Remedy = Remedy()
    asked: str = ""
    advice: str = ""
    rewrite: str = ""


def refusal_reason(refusal: Refusal, policy_name: str) -> str:
    """Return the reason in words, with what was asked for and the policy's field."""
    about = ", ".join(filter(None, (named(refusal.asked), refusal.field)))
    return f"under policy {_part(policy_name)} {refusal.what} ({about})"


def lines_to_write(refusal: Refusal) -> list[str]:
    """Return the lines of a policy's file that allow it."""
    remedy = refusal.remedy
    return [f"{'add.' * remedy.listed}{_part(remedy.line)}"] if remedy.line else []


def refusal_sentence(
    refusal: Refusal, policy_name: str, file: str, *, is_operators: bool = False
) -> str:
    """Return reason and remedy for those who see nothing but an exception's message."""
    lines, remedy = lines_to_write(refusal), _part(refusal.remedy.instead)
    if lines:
        instead = f" (or {remedy})" if remedy else ""
        command = in_a_line(lines, file, is_operators=is_operators)
        remedy = f"{'To raise it' if refusal.remedy.raises else 'To allow it'}{command}{instead}"
    else:
        remedy = _as_sentence(remedy)
    return f"cellblock: {refusal_reason(refusal, policy_name)}. {remedy}".rstrip()


def _as_sentence(remedy: str) -> str:
    """Return a remedy as a sentence; with no stop behind a path, which is copied from there."""
    stop = "" if "/" in remedy.rpartition(" ")[2] else "."
    return f"{remedy[:1].upper()}{remedy[1:]}{stop}" if remedy else ""


def refusal_card(
    refusal: Refusal, policy_name: str, file: str, *, is_operators: bool = False
) -> Bundle:
    """Return the card that is shown below the traceback.

    ``is_operators`` says that whoever reads it can't write to the policy's file.
    """
    title = f"cellblock did not allow this: under policy {_part(policy_name)} {refusal.what}"
    lines, body = wrap(title), list[str]()
    if refusal.asked:
        asked = f"It asked for {named(refusal.asked)}."
        lines += wrap(asked, indent="  ")
        body.append(c.paragraph("It asked for ", c.code(_part(refusal.asked)), "."))
    if refusal.advice:
        advice = f"In this cell, {_part(refusal.advice)}{'. Instead:' if refusal.rewrite else '.'}"
        lines += wrap(advice, indent="  ")
        body.append(c.paragraph(advice))
    if refusal.rewrite:
        rewrite = [_part(line) for line in refusal.rewrite.splitlines()]
        lines += (f"    {line}" for line in rewrite)
        body.append(c.block(rewrite)[0])
    instead = _part(refusal.remedy.instead)
    allows = allowing(
        lines_to_write(refusal), file, is_operators=is_operators, raises=refusal.remedy.raises
    )
    shown, allow_lines = c.allowing(allows)
    body += shown
    lines += allow_lines
    if instead:
        instead = _as_sentence(f"{'or ' if allows.block else ''}{instead}")
        lines += wrap(instead, indent="  ")
        body.append(c.paragraph(instead, color=c.MUTED))
    return c.make_card(
        title,
        *body,
        lines=lines,
        symbol="⊘",
        color=c.AMBER,
        side=c.policy_chip(policy_name),
        mime=REFUSAL_JSON,
        data={
            "policy": policy_name,
            "field": refusal.field,
            "what": refusal.what,
            "asked": refusal.asked,
            "advice": refusal.advice,
            "rewrite": refusal.rewrite,
            "allow": c.plain(allows.how),
            "write": allows.block,
            "instead": instead,
        },
    )


def named(name: str) -> str:
    """Return a name that a cell chose as it stands in a sentence."""
    return quoted(_part(name))


def _of_title(name: str) -> str:
    """Return a name in a title, in which no line may break within it: the next would be ours."""
    return named(clip(name or "(none)", _LONGEST)).replace(" ", "\N{OPEN BOX}")


def _part(text: str) -> str:
    return clip(visible(text), _MAX_PART)
