"""Cards about outcomes: refusals, and cells that were stopped or undone.

In order:

- ``denial``: a cell that was denied for its findings: each finding, what to do instead, and the
  policy lines that would allow it
- ``refused_widget``, ``refused_comm``, ``cleaned_widgets``: comms that the gateway refused, and
  parts of widgets that it left out
- ``stopped``, ``undone``, ``restored``: a cell that was ended from outside or undone: why, and what
  became of the variables
- ``refusal_card``: a call of a running cell that the OS layer refused; ``refusal_sentence`` has the
  words for the exception's message
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


#: Groups of findings that a card shows one by one. A cell with very many findings must not make a
#: card of 10 MB.
_MAX_DRAWN = 50
#: Findings in a card's JSON.
_MAX_JSON = 1_000
#: Columns that a reason needs beside the carets. With fewer it has lines of its own.
_MIN_REASON = 36
#: Line numbers that a row of a card lists for its findings.
_MOST_LINES: Final = 5
#: Subjects that a row of a card lists for its findings.
_MOST_SUBJECTS: Final = 4
#: Characters of the names in the label "Instead of …".
_MOST_OF_LABEL: Final = 30
#: Lines of a rewrite. A guest may claim more.
_MAX_REWRITE = 2
#: Groups of findings in a summary.
_IN_SUMMARY = 4
#: Where users of a preset write policy lines.
_OWN_FILE: Final = "in a policy file of your own (cellblock install --policy FILE)"
#: Rules whose reasons are whole sentences, without a subject.
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
    """Return the findings in groups that have the same rule, reason and remedy, in their order."""
    groups: dict[tuple[object, ...], list[Finding]] = {}
    for finding in findings:
        key = (finding.rule, finding.why, finding.remedy, finding.allows, finding.rewrite)
        groups.setdefault(key, []).append(finding)
    return list(groups.values())


def summary(findings: Sequence[Finding]) -> str:
    """Return findings in a line: ``2 findings: import-not-allowed at line 1 (os), …``."""
    groups = grouped(findings)
    group_texts = [
        f"{visible(group[0].rule)} at {places(group)}"
        + (f" ({names})" if (names := subjects(group)) else "")
        for group in groups[:_IN_SUMMARY]
    ]
    hidden = len(groups) - len(group_texts)
    more = [f"and {hidden:,} more"] if hidden else []
    return f"{count(len(groups), 'finding')}: {', '.join([*group_texts, *more])}"


def places(group: Sequence[Finding]) -> str:
    """Return the lines of findings in words: ``line 3``, ``lines 1 and 4``."""
    lines = list(dict.fromkeys(f"{finding.line:,}" for finding in group))
    more = [f"{len(lines) - _MOST_LINES:,} more"] if len(lines) > _MOST_LINES else []
    return f"line{'s' * (len(lines) > 1)} {_series([*lines[:_MOST_LINES], *more])}"


def subjects(group: Sequence[Finding]) -> str:
    """Return the subjects of findings, separated by commas."""
    names = list(dict.fromkeys(filter(None, map(subject, group))))
    more = [f"and {len(names) - _MOST_SUBJECTS:,} more"] if len(names) > _MOST_SUBJECTS else []
    return ", ".join([*names[:_MOST_SUBJECTS], *more])


def subject(finding: Finding) -> str:
    """Return a finding's subject, such as a module's name, made visible and clipped."""
    return clip(visible(finding.subject), NAME_COLUMNS)


def reason(finding: Finding) -> str:
    """Return a finding's reason as a sentence: ``open opens files``."""
    if finding.rule in ABOUT_THE_CELL or not finding.subject:
        return finding.why[:1].upper() + finding.why[1:]
    return f"{subject(finding)} {finding.why}"


def remedies(findings: Sequence[Finding]) -> list[str]:
    """Return each finding's remedy, or an empty text if an earlier finding has the same remedy."""
    earlier = set[str]()
    texts = []
    for text in (finding.remedy for finding in findings):
        first = text.partition(" ")[0]
        # A remedy goes on after "Instead: ". Names and acronyms keep their case.
        lowered = text[:1].lower() + text[1:] if first.istitle() and first.isalpha() else text
        texts.append("" if text in earlier else lowered)
        earlier.add(text)
    return texts


def rewrites(findings: Sequence[Finding]) -> list[list[str]]:
    """Return the lines of each finding's rewrite, or none if an earlier finding has the same."""
    texts = [finding.rewrite for finding in findings]
    kept_lines = []
    for index, text in enumerate(texts):
        lines = [] if text in texts[:index] else text.split("\n")[:_MAX_REWRITE]
        kept_lines.append([visible(line) for line in lines if line])
    return kept_lines


def finding_json(finding: Finding) -> dict[str, Any]:
    """Return a finding as JSON data. Lines count from 1; columns from 0, in characters.

    ``cut`` is present if the excerpt is part of a long line: the characters that are left out.
    ``allows`` are lines of a policy file that would allow it.
    """
    names = ["rule", "line", "column", "end_column", "excerpt", "subject", "why", "remedy"]
    names += [name for name in ("cut", "rewrite", "allows") if getattr(finding, name)]
    return {name: c.as_json(getattr(finding, name)) for name in names}


# --- a source line with a mark under what a finding is about ----------------------------------


class Excerpt(NamedTuple):
    """A source line, split around the part that a finding marks. All parts are visible text."""

    before: str
    marked: str
    after: str

    @property
    def line(self) -> str:
        """The whole line."""
        return "".join(self)

    @property
    def carets(self) -> str:
        """The line below it: a caret for each column of the marked part, at least one."""
        return f"{' ' * width(self.before)}{'^' * max(1, width(self.marked))}"


def excerpt(finding: Finding) -> Excerpt:
    """Return a finding's source line, split around the characters that it refuses."""
    text = finding.excerpt
    start = min(max(0, finding.column - finding.cut), len(text))
    end = start + max(1, finding.end_column - finding.column)
    before = (ELLIPSIS if finding.cut else "") + visible(text[:start])
    return Excerpt(before, visible(text[start:end]), visible(text[end:]))


def _window(source: Excerpt, columns: int) -> Excerpt:
    """Return an excerpt cut to ``columns``, with the beginning of the marked part in view."""
    if width(source.line) <= columns:
        return source
    before = source.before
    if width(before) > columns // 3:
        while before and (width(before) > columns // 3 - 1 or not width(before[0])):
            before = before[1:]
        before = ELLIPSIS + before
    marked = clip(source.marked, columns - width(before))
    room = columns - width(before) - width(marked)
    return Excerpt(before, marked, clip(source.after, room) if room > 0 else "")


def drawn_source(finding: Finding, columns: int) -> list[str]:
    """Return lines with a finding's source, the carets, and the reason beside or below these."""
    number = str(finding.line)
    gutter = f"  {' ' * len(number)} │ "
    window = _window(excerpt(finding), columns - width(gutter))
    top = f"  {number} │ {window.line}".rstrip()
    carets = f"{gutter}{window.carets} "
    # The carets mark a builtin's name. Those of an import may mark several, so it is named.
    name = f"{subject(finding)} " if finding.rule == "import-not-allowed" else ""
    text = name + visible(finding.why)
    room = columns - width(carets)
    if width(text) <= room:
        return [top, f"{carets}{text}".rstrip()]
    if room >= _MIN_REASON:
        hanging = gutter + " " * (width(carets) - width(gutter))
        return [top, *wrap(text, indent=carets, hanging=hanging, columns=columns)]
    return [top, carets.rstrip(), *wrap(text, indent=gutter, columns=columns)]


# --- the card for a cell that was denied ------------------------------------------------------


class _Row(NamedTuple):
    """A line of a denial's card: place, subject and reason of a group of findings.

    The field names are keys of the card's JSON. ``several``: ``what`` has several names.
    """

    place: str
    what: str
    why: str
    several: bool = False

    @property
    def gap(self) -> str:
        """The text between names and reason. A reason is worded for one name."""
        return ": " if self.several else " "


class _Instead(NamedTuple):
    """What to do instead. The label names the row, unless it is for all rows."""

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
    """Return the card for a cell that was denied.

    A line for each group of findings has place, subject and reason. Then follow the remedies, and
    one block of lines for a policy file that would allow all of it. ``file`` is the policy's file
    as it was named. ``is_operators`` says that the reader can't write to that file.
    ``source_label`` names the source with the findings, if it is not the cell itself.
    """
    groups = grouped(findings)
    title = f"cellblock did not run {source_label or 'this cell'}: {count(len(groups), 'finding')}"
    policy = f"policy: {clip(visible(policy_name), NAME_COLUMNS)}"
    gap = " " * (COLUMNS - width(visible(title)) - width(policy))
    lines = [f"{visible(title)}{gap}{policy}"] if len(gap) > 1 else [*wrap(visible(title)), policy]
    drawn = groups[:_MAX_DRAWN]
    rows = list(map(_row, drawn))
    body = list[str]()
    indent = max((width(row.place) for row in rows), default=0) + 4
    lines.append("")
    for number, row in enumerate(rows):
        text = f"{row.what}{row.gap}{row.why}" if row.what else row.why
        lines += wrap(text, indent=f"  {row.place}".ljust(indent), hanging=" " * indent)
        place = c.element("span", row.place, style=f"color:{c.MUTED}")
        subject_html = [c.code(row.what), row.gap] if row.what else []
        body.append(c.paragraph(place, " ", *subject_html, row.why, tight=number > 0))
    if tail := groups[_MAX_DRAWN:]:
        rules = Counter(group[0].rule for group in tail).most_common(5)
        numbers = ", ".join(f"{number:,} {rule}" for rule, number in rules)
        summary_line = (
            f"And {count(len(tail), 'more finding')}, up to line {tail[-1][-1].line}: {numbers}"
        )
        lines += wrap(summary_line, indent="  ")
        body.append(c.paragraph(summary_line, color=c.MUTED))
    advices = _instead(drawn)
    for advice in advices:
        advice_html, text_lines = c.instead(advice.text, advice.label) if advice.text else ("", [])
        body += [advice_html] if advice_html else []
        lines += ["", *text_lines, *(f"    {clip(line, COLUMNS - 4)}" for line in advice.rewrite)]
        body += [c.block(advice.rewrite)[0]] if advice.rewrite else []
    allows = allowing(
        (line for finding in findings for line in finding.allows), file, is_operators=is_operators
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
            "left": len(tail),
            "rows": [
                row._asdict() | {"finding": findings.index(group[0])}
                for row, group in zip(rows, drawn, strict=True)
            ],
            "instead": [advice._asdict() for advice in advices],
            "allow": c.plain(allows.how),
            "write": allows.block,
            "findings": [
                finding_json(item) | {"reason": reason(item)} for item in findings[:_MAX_JSON]
            ],
        },
    )


def _row(group: Sequence[Finding]) -> _Row:
    """Return the line for a group of findings."""
    first = group[0]
    if first.rule in ABOUT_THE_CELL or not first.subject:
        return _Row(places(group), "", reason(first))
    several = any(finding.subject != first.subject for finding in group)
    return _Row(places(group), subjects(group), visible(first.why), several)


def _instead(groups: Sequence[Sequence[Finding]]) -> list[_Instead]:
    """Return the remedies, each once; it names its findings unless it is for all of them."""
    by_remedy: dict[tuple[str, str], list[Finding]] = {}
    for group in groups:
        by_remedy.setdefault((group[0].remedy, group[0].rewrite), []).extend(group)
    by_remedy.pop(("", ""), None)
    is_of_all = len(by_remedy) == 1 and sum(map(len, by_remedy.values())) == sum(map(len, groups))
    entries = []
    for group in by_remedy.values():
        (remedy,), (rewrite,) = remedies(group[:1]), rewrites(group[:1])
        names = subjects(group)
        suffix = f" of {names}" if names and len(names) <= _MOST_OF_LABEL else ""
        label = "Instead: " if is_of_all else f"Instead{suffix}, {places(group)}: "
        entries.append(_Instead(label, remedy, rewrite))
    return entries


def denial_failure(card: Bundle, findings: Sequence[Finding]) -> Failure:
    """Return the error that goes with a card made by ``denial`` for the same ``findings``."""
    return Failure("PolicyDenied", summary(findings), card["text/plain"])


# --- the cards for comms: a widget not shown, a comm not opened, parts left out ---------------

COMM_JSON: Final = "application/vnd.cellblock.comm+json"
_LONGEST_NAME: Final = 100
_NO_LINES: Final = Allowing()
_RIGHTS: Final = "it would run in the page, with all that you may do there."


def refused_widget(
    module: str, model: str, *, policy_name: str, file: str = "", known: bool
) -> Bundle:
    """Return the card for a widget that was refused.

    ``file`` is the policy's file as it was named. ``known``: the policy allows the widget's module,
    but the gateway does not know the model.
    """
    module_name = _of_title(module)
    kind = _of_title(model)
    title = f"cellblock did not show a widget of {module_name}"
    if known:
        reason_text = f"cellblock does not know how to clean {kind}, a widget of {module_name}."
        remedy = "use one of ipywidgets' own, or show the value itself."
        lines = list[str]()
    else:
        reason_text = f"{kind} brings a script of its own: {_RIGHTS}"
        remedy = "use one of ipywidgets' own, or a picture."
        lines = [list_line("add.widget_modules", [module])]
    data = {"module": clip(module, _LONGEST_NAME), "model": clip(model, _LONGEST_NAME)}
    return _refusal(title, reason_text, remedy, policy_name, data, allowing(lines, file))


def widgets_as_text(*, policy_name: str) -> Bundle:
    """Return the card for widgets under a policy that shows only text."""
    return _refusal(
        'Widgets are shown as text: display = "text"',
        "The text of one is what it was when it was displayed: later changes are not shown.",
        "print what changes; for a progress bar, from tqdm import tqdm.",
        policy_name,
        {"target": "jupyter.widget"},
    )


def refused_comm(target: str, *, policy_name: str, file: str = "") -> Bundle:
    """Return the card for a comm whose target is not allowed; ``file`` is the policy's file."""
    title = f"cellblock did not open a comm to {_of_title(target)}"
    target = clip(target, _LONGEST_NAME)
    if target.startswith(HOST_TARGETS):
        reason_text = "The host itself speaks with the front end there: cells can't use it."
        return _refusal(title, reason_text, "choose another name.", policy_name, {"target": target})
    reason_text = (
        f"An extension of the front end listens there, and acts on what cells send: {_RIGHTS}"
    )
    allows = allowing([list_line("add.comm_targets", [target])], file)
    return _refusal(title, reason_text, "", policy_name, {"target": target}, allows)


def _file_of(policy_name: str) -> str:
    """Return in which file to set a field of the policy of this name, in words."""
    if policy_name in PRESETS or not policy_name:
        return _OWN_FILE
    return f"in the file of policy {clip(visible(policy_name), NAME_COLUMNS)}"


def _refusal(
    title: str,
    reason_text: str,
    remedy: str,
    policy_name: str,
    data: dict[str, str],
    allows: Allowing = _NO_LINES,
) -> Bundle:
    """Return the card of a refused comm or widget."""
    remedy_html, remedy_lines = c.instead(remedy) if remedy else (c.join(), [])
    allow_html, allow_lines = c.allowing(allows)
    return c.make_card(
        title,
        c.paragraph(reason_text),
        remedy_html,
        *allow_html,
        lines=[*wrap(title), *wrap(reason_text, indent="  "), *remedy_lines, *allow_lines],
        own=[*remedy_lines[:1], *allow_lines[:1]],
        symbol="⊘",
        color=c.AMBER,
        side=c.policy_chip(policy_name),
        mime=COMM_JSON,
        data={"outcome": "refused", **data},
    )


def cleaned_widgets(parts: Sequence[tuple[str, str, str]], *, policy_name: str) -> Bundle:
    """Return the card for parts of widgets that were left out: model, key and reason of each."""
    title = f"cellblock left out {count(len(parts), 'part')} of the widgets above"
    rows = [(clip(f"{model}.{key}", 60), clip(why, _LONGEST_NAME)) for model, key, why in parts]
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


# --- the cards for cells that were stopped or undone ------------------------------------------


class Reason(StrEnum):
    """The reason why a cell was stopped."""

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


#: The reasons in words. ``{limit}`` is the limit, or the known cause.
_WORDS: Final = {
    Reason.breach: "it got around the language layer; refused: {limit}",
    Reason.cpu: "it used more than {limit} of processor time (cpu_seconds)",
    Reason.crashed: "its interpreter crashed ({limit})",
    Reason.deep: "there are more folders than can be measured, or more than {limit} in one another",
    Reason.exited: "it ended its interpreter with exit status {limit}",
    Reason.files: "it left more than {limit} in the project, which are staged",
    Reason.folders: "it kept more than {limit} open",
    Reason.forks: "its sandbox and its forks held more than {limit} of memory (forks_max_bytes)",
    Reason.interrupted: "you interrupted it twice and it did not end",
    Reason.locked: "for {limit} the host could not measure its folders",
    Reason.lost: "its interpreter ended without a reply ({limit})",
    Reason.mapped: "its processes had mapped pages of files that would fill {limit}",
    Reason.memory: "it used more than {limit} of memory (memory_max_bytes)",
    Reason.protocol: "its interpreter broke the kernel's protocol ({limit})",
    Reason.scratch: "it kept more than {limit} in the scratch folder (scratch_max_bytes)",
    Reason.timeout: "it ran longer than {limit} (timeout)",
}
#: The reasons for which nobody stopped the cell: it ended by itself.
_BY_ITSELF: Final = frozenset({Reason.crashed, Reason.exited, Reason.lost})
#: The policy's field that sets the limit.
_SETTINGS: Final = {
    Reason.cpu: "cpu_seconds",
    Reason.forks: "forks_max_bytes",
    Reason.memory: "memory_max_bytes",
    Reason.scratch: "scratch_max_bytes",
    Reason.timeout: "timeout",
}


#: Beginnings of the names of audit events (PEP 578), and what these are about.
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
    """Return the name of a breach's operation, with what it is about, for a card.

    The name comes from a guest. If it does not look like an audit event's, it is not repeated.
    """
    if not _OPERATION.fullmatch(name):
        return "an operation"
    about = next((meaning for begins, meaning in _OPERATIONS if name.startswith(begins)), "")
    return f"{name} ({about})" if about else name


class State(StrEnum):
    """The state of the variables after a cell was stopped."""

    gone = "gone"  # the interpreter was restarted
    kept = "kept"  # the interpreter lives on; the cell was interrupted
    restored = "restored"  # a copy took over
    apart = "apart"  # the variables are a variant's, not the reader's


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
    """Return the card for a cell that was stopped.

    ``limit`` is the limit ("60 s") or the known cause ("signal 11"); it may be empty. ``lost`` says
    what the copy that took over lacks. ``own`` is the argument to run the cell with for more time,
    if the limit came with the cell and not from the policy. ``beside``: the cell ended with another
    that ran at the same time, whose end this is. ``estimate`` qualifies a measured memory:
    "estimated" if it is not known how much of it the cell's processes share, "charged" if it is too
    much only with memory of the OS kernel, which may be another program's.
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
            f"{Heading.ANEW}empties its scratch folder; %changes drop drops what "
            "cells wrote to the project."
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
    """Return the error that goes with a card made by ``stopped``."""
    data = card[OUTCOME_JSON]
    beside = data.get("beside", False)
    sentence = _sentence(Reason(data["reason"]), data["limit"], beside=beside)
    return Failure("CellStopped", sentence.removeprefix(": ").strip(), card["text/plain"])


def undone(counts: Sequence[int], *, lost: Sequence[str] = ()) -> Bundle:
    """Return the card for ``%undo``; ``counts`` are the execution counts of the undone cells."""
    cells = _series([f"[{count}]" for count in counts])
    title = f"Cells {cells} are undone."
    if len(counts) == 1:
        title = Heading.UNDONE.format(number=counts[0])
    variables = f"{Heading.VARIABLES}as they were before {f'[{counts[0]}]' if counts else 'it'}."
    lines = [title, variables + _lost(lost), str(Heading.STAYS)]
    return _card(lines, State.restored, {"outcome": "undone", "cells": counts}, lost)


def _series(parts: Sequence[str]) -> str:
    """Return the parts as a list in words: ``a``, ``a and b``, ``a, b and c``."""
    return " and ".join(filter(None, (", ".join(parts[:-1]), *parts[-1:])))


def restored(name: str, *, branch: str = "", lost: Sequence[str] = ()) -> Bundle:
    """Return the card for ``%restore`` of a checkpoint, or for going to a ``branch``.

    ``name`` is the checkpoint, or the kept state from which the branch goes on.
    """
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
    """Return the reason in words, to follow "cellblock stopped this cell"."""
    sentence = _WORDS[reason]
    if limit:
        sentence = sentence.format(limit=visible(limit))
    else:
        sentence = sentence.replace(" ({limit})", "").replace("{limit}", "its limit")
    return f" with one that ran beside it, of which: {sentence}" if beside else f": {sentence}"


def _lost(lost: Sequence[str]) -> str:
    """Return the sentence about what a copy lacks; empty if it lacks nothing."""
    return f" Not restored: {', '.join(lost)}." if lost else ""


def _card(lines: Sequence[str], state: State, data: dict[str, Any], lost: Sequence[str]) -> Bundle:
    """Return a card of these lines: the title, a line about the variables, then advice."""
    title, variables, *advice = lines
    is_gone = state is State.gone
    # The user asked for this outcome, so it looks like the list of branches, not like a stop.
    was_asked_for = data["outcome"] in ("restored", "undone")
    return c.make_card(
        title,
        c.paragraph(c.element("strong", variables) if is_gone else variables),
        *(c.paragraph(line, color=c.MUTED) for line in advice),
        lines=[piece for line in lines for piece in wrap(line)],
        symbol="≡" if was_asked_for else "■",
        color=c.GREY if was_asked_for else c.RED if is_gone else c.AMBER,
        mime=OUTCOME_JSON,
        data=data | {"notes": lines[1:], "lost": lost},
    )


# --- the card for a call that the OS layer refused --------------------------------------------

#: Columns of one part of a refusal.
_MAX_PART: Final = 300


@dataclass(frozen=True, slots=True)
class Remedy:
    """The remedy for a refusal."""

    #: The line of a policy file that allows the call; empty if no line does.
    line: str = ""
    #: Whether the line adds to a list, so that it needs ``add.`` before it.
    listed: bool = False
    #: Whether the line raises a limit. How much would be enough is not known.
    raises: bool = False
    #: What the cell can do instead.
    instead: str = ""


@dataclass(frozen=True, slots=True)
class Refusal:
    """A refusal of a call that a running cell made."""

    #: The policy's field behind it.
    field: str
    #: The reason as a sentence, such as "cells have no network".
    what: str
    remedy: Remedy = Remedy()
    #: What the call was about: a path, an address, a name.
    asked: str = ""
    #: What the source check says about the line in the cell that led to the call.
    advice: str = ""
    #: One or two lines that do the same with an operation.
    rewrite: str = ""


def refusal_reason(refusal: Refusal, policy_name: str) -> str:
    """Return the reason in words, with what the call was about and the policy's field."""
    about = ", ".join(filter(None, (named(refusal.asked), refusal.field)))
    return f"under policy {_shown_part(policy_name)} {refusal.what} ({about})"


def lines_to_write(refusal: Refusal) -> list[str]:
    """Return the lines of a policy file that would allow the call."""
    remedy = refusal.remedy
    return [f"{'add.' * remedy.listed}{_shown_part(remedy.line)}"] if remedy.line else []


def refusal_sentence(
    refusal: Refusal, policy_name: str, file: str, *, is_operators: bool = False
) -> str:
    """Return reason and remedy as one line, for an exception's message."""
    lines = lines_to_write(refusal)
    remedy = _shown_part(refusal.remedy.instead)
    if lines:
        alternative = f" (or {remedy})" if remedy else ""
        command = in_a_line(lines, file, is_operators=is_operators)
        remedy = (
            f"{'To raise it' if refusal.remedy.raises else 'To allow it'}{command}{alternative}"
        )
    else:
        remedy = _as_sentence(remedy)
    return f"cellblock: {refusal_reason(refusal, policy_name)}. {remedy}".rstrip()


def _as_sentence(remedy: str) -> str:
    """Return a remedy as a sentence, without a full stop behind a path, which users copy."""
    stop = "" if "/" in remedy.rpartition(" ")[2] else "."
    return f"{remedy[:1].upper()}{remedy[1:]}{stop}" if remedy else ""


def refusal_card(
    refusal: Refusal, policy_name: str, file: str, *, is_operators: bool = False
) -> Bundle:
    """Return the card that is shown below the traceback.

    ``file`` is the policy's file as it was named; ``is_operators``: the reader can't write to it.
    """
    title = f"cellblock did not allow this: under policy {_shown_part(policy_name)} {refusal.what}"
    lines = wrap(title)
    body = list[str]()
    if refusal.asked:
        request_text = f"It asked for {named(refusal.asked)}."
        lines += wrap(request_text, indent="  ")
        body.append(c.paragraph("It asked for ", c.code(_shown_part(refusal.asked)), "."))
    if refusal.advice:
        advice = (
            f"In this cell, {_shown_part(refusal.advice)}{'. Instead:' if refusal.rewrite else '.'}"
        )
        lines += wrap(advice, indent="  ")
        body.append(c.paragraph(advice))
    if refusal.rewrite:
        rewrite = [_shown_part(line) for line in refusal.rewrite.splitlines()]
        lines += (f"    {line}" for line in rewrite)
        body.append(c.block(rewrite)[0])
    alternative = _shown_part(refusal.remedy.instead)
    allows = allowing(
        lines_to_write(refusal), file, is_operators=is_operators, raises=refusal.remedy.raises
    )
    allow_html, allow_lines = c.allowing(allows)
    body += allow_html
    lines += allow_lines
    if alternative:
        alternative = _as_sentence(f"{'or ' if allows.block else ''}{alternative}")
        lines += wrap(alternative, indent="  ")
        body.append(c.paragraph(alternative, color=c.MUTED))
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
            "instead": alternative,
        },
    )


def named(name: str) -> str:
    """Return a name that a cell chose, clipped and quoted for a sentence of the host's."""
    return quoted(_shown_part(name))


def _of_title(name: str) -> str:
    """Return a name for a title, with visible blanks instead of real ones.

    A line must not break within the name: the rest of it would begin a line, like the host's own.
    """
    return named(clip(name or "(none)", _LONGEST_NAME)).replace(" ", "\N{OPEN BOX}")


def _shown_part(text: str) -> str:
    return clip(visible(text), _MAX_PART)
