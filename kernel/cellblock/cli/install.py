"""``cellblock install``, ``uninstall``, ``image``, ``doctor``, ``packages``: setting up a machine.

``install`` writes kernelspecs for policies. ``doctor`` tries by probes in a guest what this machine
enforces of a policy; ``install`` says that too. Both prepare the files that make kernels start
fast. ``image`` makes the image of backend docker. ``packages`` shows, and clears, the packages that
were installed for policies, and the failures to install.
"""

from __future__ import annotations

import os
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import msgspec
import typer
from rich.markup import escape
from rich.table import Table

from cellblock.backends import container_engine
from cellblock.backends.report import doctor_report
from cellblock.cli.common import (
    AllowUnsafe,
    AsJson,
    PolicyOption,
    complain,
    complain_of,
    load_policy,
    print_json,
    say,
    say_rich,
)
from cellblock.cli.main import group
from cellblock.errors import BackendError, CellblockError, PolicyError
from cellblock.guest.probes import BY_NAME
from cellblock.host.services.operations.packages import PackageStore
from cellblock.jupyter import install as specs
from cellblock.jupyter.preparation import prepare
from cellblock.jupyter.proving import run_probes
from cellblock.policy.folders import package_folder
from cellblock.policy.operations import canonical_package, parse_requirement

if TYPE_CHECKING:
    from jupyter_client.kernelspec import KernelSpec

    from cellblock.backends.report import DoctorReport
    from cellblock.policy.model import Enforcement


app: Final = typer.Typer(add_completion=False)
image_app: Final = group("image")
app.add_typer(image_app, name="image")
packages_app: Final = group("packages")
app.add_typer(packages_app, name="packages")


@app.command()
def install(
    *,
    policy: PolicyOption = "safe",
    name: Annotated[str | None, typer.Option(help="Kernel name; default cellblock-POLICY.")] = None,
    in_place_of: Annotated[
        str | None,
        typer.Option("--as", metavar="NAME", help="Take another kernel's name, such as python3."),
    ] = None,
    display_name: Annotated[str | None, typer.Option(help="What the launcher shows.")] = None,
    user: Annotated[bool, typer.Option("--user", help="For this user (default).")] = False,
    sys_prefix: Annotated[
        bool, typer.Option("--sys-prefix", help="Into this Python environment.")
    ] = False,
    prefix: Annotated[Path | None, typer.Option(help="Below this folder.")] = None,
    given: Annotated[
        Path | None,
        typer.Option("--input", metavar="FILE", help="JSON that its cells find in `inputs`."),
    ] = None,
    allow_unsafe: AllowUnsafe = False,
    warm: Annotated[
        bool | None,
        typer.Option(
            help="Start one ahead in each server; default with --sys-prefix. They need cellblock."
        ),
    ] = None,
) -> None:
    """Install a kernel for a policy of your own, so that Jupyter offers it.

    With `--as python3` it is what notebooks for Python start; `cellblock uninstall python3` puts
    back what was there.
    """
    if (user, sys_prefix, prefix is not None).count(True) > 1:
        raise typer.BadParameter("Choose one of --user, --sys-prefix and --prefix.")
    if name is not None and in_place_of is not None:
        raise typer.BadParameter("Choose one of --name and --as.")
    chosen_prefix = Path(sys.prefix) if sys_prefix else prefix
    if in_place_of is not None and chosen_prefix is None and not user:
        chosen_prefix = specs.default_prefix()
    options: Any = {"prefix": chosen_prefix, "allow_unsafe": allow_unsafe, "inputs": given}
    options |= {"name": in_place_of or name, "displace": in_place_of is not None, "warm": warm}
    installed, folder = specs.install(policy, display_name=display_name, **options)
    say(f"Installed kernel {installed} in {folder}{_audience(chosen_prefix)}")
    first_spec = specs.find(installed)
    if first_spec is not None and Path(first_spec.resource_dir) != folder:
        say(f"Jupyter finds another {installed} first: {_name_and_folder(first_spec)}")
    loaded_policy = load_policy(policy)
    try:
        say_rich(
            *verdict(doctor_report(loaded_policy, run_probes), loaded_policy.name), soft_wrap=True
        )
    except BackendError as failure:
        say(f"It runs nothing here: {failure}")
    if (refusal := prepare(policy, specs.named(policy))) is not None:
        say(_no_cell_runs(refusal))


@app.command()
def uninstall(name: str) -> None:
    """Remove a kernel that `cellblock install` installed."""
    say(f"Removed {specs.uninstall(name)}")
    if (restored := specs.find(name)) is not None:
        say(f"{name} is {_name_and_folder(restored)} again")


def _name_and_folder(spec: KernelSpec) -> str:
    return f"{spec.display_name} in {spec.resource_dir}"


@image_app.command()
def build(
    *,
    tag: Annotated[
        str, typer.Option("--tag", metavar="NAME:TAG", help="For container_image in a policy.")
    ] = "",
    engine: Annotated[str, typer.Option(help="docker, podman or nerdctl.")] = "auto",
    again: Annotated[bool, typer.Option("--again", help="Even if it is there.")] = False,
) -> None:
    """Make the image that backend docker starts: an empty one, since the rest is mounted."""
    try:
        program = container_engine.find_engine(engine, os.environ)
    except container_engine.EngineError as error:
        raise BackendError(str(error)) from None
    name = tag or container_engine.EMPTY_IMAGE
    if not again and container_engine.has_image(program, name):
        say(f"{name} is there already")
        return
    say(f"Made {container_engine.build_image(program, name)}")


@app.command()
def doctor(
    *,
    policy: Annotated[
        str | None,
        typer.Option("--policy", metavar="NAME|FILE", help="Default: that of each kernel here."),
    ] = None,
    every: Annotated[bool, typer.Option("--all", help="Print all fields and probes.")] = False,
    as_json: AsJson = False,
) -> None:
    """Test what this machine enforces of a policy, and say in a line whether it is all.

    Without --policy these are the policies of all kernels that Jupyter offers here; JSON is a list
    then. Exit status 1 if this machine can't confine cells, or nobody could try whether it does.
    """
    policy_names = (specs.installed_policies() or ("safe",)) if policy is None else (policy,)
    reports = []
    failed = False
    for spec in policy_names:
        try:
            report, refusal = _examine(spec, every=every, shows=not as_json)
        except CellblockError as failure:
            if policy is not None and isinstance(failure, PolicyError):
                raise
            complain_of(failure)
            failed = True
        else:
            if refusal is not None:
                complain(_no_cell_runs(refusal))
                failed = True
            reports.append(msgspec.to_builtins(report))
            contradicted = any(gap.contradicted for gap in report.gaps)
            untried = bool(report.probes and report.unproved)
            failed = failed or report.backend == "noop" or contradicted or untried
    if as_json and (reports or policy is None):
        print_json(reports if policy is None else reports[0])
    raise typer.Exit(code=int(failed))


def _audience(chosen_prefix: Path | None) -> str:
    """Return who finds a kernel that was installed below a prefix; None is the user's own."""
    if chosen_prefix is None:
        return ", for this user in every environment (--sys-prefix: for this one alone)"
    if specs.is_this_environment(chosen_prefix):
        return ", for this Python environment (--user: for this user in every one)"
    return ""


def _no_cell_runs(refusal: PolicyError) -> str:
    return f"In a kernel that starts in this folder no cell would run: {refusal}"


def _examine(spec: str, *, every: bool, shows: bool) -> tuple[DoctorReport, PolicyError | None]:
    """Return the report on one policy, and prepare for kernels that start under that policy.

    Print the report if ``shows``. Return also the error why no cell would run in a kernel that
    starts here, or None.
    """
    loaded_policy = load_policy(spec)
    report = doctor_report(loaded_policy, run_probes)
    if shows:
        say_rich(*verdict(report, loaded_policy.name), soft_wrap=True)
        if every:
            _print_all(report)
    return report, prepare(spec, specs.named(spec))


def verdict(report: DoctorReport, policy_name: str) -> list[str]:
    """Return lines that say whether the policy is enforced here, and what would improve that."""
    name = escape(policy_name)
    backend = report.backend
    if backend == "noop":
        line = "[bold red]✗ Audit only: the operating system enforces nothing of this policy.[/]"
        why = next((item.why for item in report.order if item.name == "landlock"), "")
        return [line, f"  landlock: {escape(why)}"] if why else [line]
    lines = []
    if report.unproved and report.probes:
        lines.append(f"[red]✗ The probes did not run to their end: {escape(report.unproved)}[/]")
    passed_probes = [probe.name for probe in report.probes if probe.outcome == "passed"]
    lines += [f"[bold red]✗ {text}: {escape(BY_NAME[text].hole)}[/]" for text in passed_probes]
    matters = [gap for gap in report.gaps if gap.matters]
    consequences = [escape(gap.consequence) for gap in matters]
    lines += [f"[yellow]◐ Policy {name} under {backend}: {text}[/]" for text in consequences]
    lines += [f"  → {escape(text)}" for text in dict.fromkeys(gap.remedy for gap in matters)]
    return lines or [f"[green]✓ Policy {name} is enforced on this machine, by {backend}.[/]"]


def _print_all(report: DoctorReport) -> None:
    """Print the backends, how each field of the policy is enforced, the probes, and the gaps."""
    backends = Table("backend", "", "why", title="Backends, strongest first", title_justify="left")
    for candidate in report.order:
        style = "bold" if candidate.name == report.backend else "dim"
        backends.add_row(candidate.name, candidate.verdict, escape(candidate.why), style=style)
    fields = Table("field", "status", "how", title="Enforcement", title_justify="left")
    for capability in report.capabilities:
        status = _status(capability, fields_with_gaps={gap.capability for gap in report.gaps})
        holes = "".join(f"\nnot covered: {hole}" for hole in capability.holes)
        fields.add_row(capability.capability, status, escape(capability.mechanism + holes))
    gaps = Table("field", "what that means, and what closes it", title_justify="left")
    gaps.title = "Asked for and not enforced here" if report.gaps else "Without gaps"
    for gap in report.gaps:
        difference = f"asked: {gap.asked}\nhere: {gap.actual}"
        gaps.add_row(gap.capability, escape(f"{difference}\n{gap.consequence}\n→ {gap.remedy}"))
    head = f"OS kernel {escape(report.os_kernel)}, Landlock ABI {report.landlock_abi}"
    probed = [_probes_table(report)] if report.probes else []
    say_rich(head, backends, fields, *probed, gaps)


def _probes_table(report: DoctorReport) -> Table:
    """Return the table of probes, with a row for each capability."""
    table = Table("field", "tried in a guest", title="Probes", title_justify="left")
    styles = {"refused": "green", "passed": "bold red", "disclosed": "yellow", "unwitnessed": "dim"}
    lines_of: dict[str, list[str]] = {}
    for probe in report.probes:
        style = styles[probe.outcome]
        why = f" ({escape(probe.detail)})" if probe.outcome == "unwitnessed" else ""
        line = f"{probe.name} [{style}]{probe.outcome}[/]{why}"
        lines_of.setdefault(probe.capability, []).append(line)
    for capability, lines in lines_of.items():
        table.add_row(capability, "\n".join(lines))
    return table


def _status(capability: Enforcement, fields_with_gaps: set[str]) -> str:
    if capability.holds:
        return f"[green]{capability.status}[/]"
    if capability.capability not in fields_with_gaps:
        return f"[dim]{capability.status}[/]"
    return f"[{'yellow' if capability.holes else 'red'}]{capability.status}[/]"


Packages = Annotated[
    list[str] | None, typer.Argument(metavar="NAME...", help="Packages; without any, all.")
]


@packages_app.command("show")
def show_packages() -> None:
    """List packages by index and list: those installed, and those that failed."""
    for store in _package_stores():
        about = store.about()
        table = Table("asked for", "", "", title_justify="left")
        table.title = escape(f"{about.get('index', '?')}  {', '.join(about.get('allow', ()))}")
        for entry in store.packages():
            table.add_row(
                escape(entry["requirement"]), escape(f"{entry['name']} {entry['version']}"), ""
            )
        for entry in store.failures():
            failure_time = datetime.fromtimestamp(entry["time"], UTC).isoformat(" ", "minutes")
            table.add_row(
                escape(entry["requirement"]),
                f"[red]failed[/] {failure_time}",
                escape(entry["message"]),
            )
        say_rich(table)
    if not _package_stores():
        say("no policy had packages installed yet")


@packages_app.command("clear")
def clear_packages(
    names: Packages = None,
    *,
    installed: Annotated[
        bool, typer.Option("--installed", help="Remove what is installed, too.")
    ] = False,
) -> None:
    """Forget failures, so that these packages are tried again.

    With --installed, installed packages are removed too, even if kernels use them.
    """
    chosen_names = set(map(canonical_package, names or ()))

    def matches(requirement: str) -> bool:
        return not chosen_names or parse_requirement(requirement).name in chosen_names

    cleared = sum(store.clear(matches, installed=installed) for store in _package_stores())
    say(f"cleared {cleared}")


def _package_stores() -> list[PackageStore]:
    base = Path(package_folder())
    return [PackageStore(folder) for folder in sorted(base.iterdir())] if base.is_dir() else []
