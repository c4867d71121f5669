"""``cellblock doctor``: what this machine enforces of a policy, as probes in a guest find it."""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from cellblock.backends.probes import BY_NAME
from cellblock.backends.report import doctor_report
from cellblock.cli.approvals import summary
from cellblock.cli.common import AsJson, PolicyOption, complain, load_policy, print_json
from cellblock.errors import BackendError
from cellblock.jupyter import probe as probes

if TYPE_CHECKING:
    from cellblock.backends.base import Chosen
    from cellblock.backends.probes import Proof
    from cellblock.backends.report import DoctorReport
    from cellblock.policy.enforcement import Enforcement
    from cellblock.policy.model import Policy
    from cellblock.wire.messages import LockReport

app: Final = typer.Typer(add_completion=False)


@app.command()
def doctor(
    *,
    policy: PolicyOption = "safe",
    every: Annotated[bool, typer.Option("--all", help="Print all fields and probes.")] = False,
    as_json: AsJson = False,
) -> None:
    """Try what this machine enforces of a policy, and say in a line whether that is all.

    Exit status 1 if this machine can't confine cells, or nobody could try whether it does.
    """
    asked = load_policy(policy)
    try:
        report = doctor_report(asked, run_probes)
    except BackendError as failure:
        complain(str(failure))
        raise typer.Exit(code=1) from None
    if as_json:
        print_json(dataclasses.asdict(report))
    else:
        console = Console(highlight=False, soft_wrap=True)
        for line in verdict(report, asked.name):
            console.print(line)
        if every:
            _print_all(Console(highlight=False), report)
        if said := summary(asked):
            typer.echo(said)
    contradicted = any(gap.contradicted for gap in report.gaps)
    untried = bool(report.probes and report.unproved)
    raise typer.Exit(code=int(report.backend == "noop" or contradicted or untried))


def run_probes(policy: Policy, chosen: Chosen) -> tuple[Proof | None, LockReport | None]:
    """Run the suite of probes, where guests start: on Linux."""
    if sys.platform != "linux":
        return None, None
    return probes.proved(policy, chosen, Path.cwd())


def verdict(report: DoctorReport, policy_name: str) -> list[str]:
    """Return a line that says whether the policy holds here, and what would improve that."""
    name, backend = escape(policy_name), report.backend
    if backend == "noop":
        said = "[bold red]✗ Audit only: the operating system enforces nothing of this policy.[/]"
        why = next((one.why for one in report.order if one.name == "landlock"), "")
        return [said, f"  landlock: {escape(why)}"] if why else [said]
    lines = []
    if report.unproved and report.probes:
        lines.append(f"[red]✗ The probes did not run to their end: {escape(report.unproved)}[/]")
    passed = [probe.name for probe in report.probes if probe.outcome == "passed"]
    lines += [f"[bold red]✗ {each}: {escape(BY_NAME[each].hole)}[/]" for each in passed]
    matters = [gap for gap in report.gaps if gap.matters]
    shown = [escape(gap.consequence) for gap in matters]
    lines += [f"[yellow]◐ Policy {name} under {backend}: {each}[/]" for each in shown]
    lines += [f"  → {escape(each)}" for each in dict.fromkeys(gap.remedy for gap in matters)]
    return lines or [f"[green]✓ Policy {name} is enforced on this machine, by {backend}.[/]"]


def _print_all(console: Console, report: DoctorReport) -> None:
    """Print what backends there are, what they enforce of the policy, and what is missing."""
    console.print(f"OS kernel {escape(report.os_kernel)}, Landlock ABI {report.landlock_abi}")
    backends = Table("backend", "", "why", title="Backends, strongest first", title_justify="left")
    for one in report.order:
        style = "bold" if one.name == report.backend else "dim"
        backends.add_row(one.name, one.verdict, escape(one.why), style=style)
    fields = Table("field", "status", "how", title="Enforcement", title_justify="left")
    for capability in report.capabilities:
        status = _status(capability, asked={gap.capability for gap in report.gaps})
        holes = "".join(f"\nnot covered: {hole}" for hole in capability.holes)
        fields.add_row(capability.capability, status, escape(capability.mechanism + holes))
    gaps = Table("field", "what that means, and what closes it", title_justify="left")
    gaps.title = "Asked for and not enforced here" if report.gaps else "Without gaps"
    for gap in report.gaps:
        asked = f"asked: {gap.asked}\nhere: {gap.actual}"
        gaps.add_row(gap.capability, escape(f"{asked}\n{gap.consequence}\n→ {gap.remedy}"))
    console.print(backends, fields, *([_probes_table(report)] if report.probes else []), gaps)


def _probes_table(report: DoctorReport) -> Table:
    table = Table("field", "tried in a guest", title="Probes", title_justify="left")
    styles = {"refused": "green", "passed": "bold red", "disclosed": "yellow", "unwitnessed": "dim"}
    shown: dict[str, list[str]] = {}
    for probe in report.probes:
        style = styles[probe.outcome]
        why = f" ({escape(probe.detail)})" if probe.outcome == "unwitnessed" else ""
        said = f"{probe.name} [{style}]{probe.outcome}[/]{why}"
        shown.setdefault(probe.capability, []).append(said)
    for capability, tried in shown.items():
        table.add_row(capability, "\n".join(tried))
    return table


def _status(capability: Enforcement, asked: set[str]) -> str:
    if capability.holds:
        return f"[green]{capability.status}[/]"
    if capability.capability not in asked:
        return f"[dim]{capability.status}[/]"
    return f"[{'yellow' if capability.holes else 'red'}]{capability.status}[/]"
